//! The expressions of our own pages: whoever copies an alert rule from them has to be able to run
//! it here.

use super::script::{SECOND, load, now};
use plinth_promql::{Answered, Memory, Options};

const PAGES: [(&str, &str); 2] = [
    ("monitoring.md", include_str!("../../../docs/monitoring.md")),
    ("operations.md", include_str!("../../../docs/operations.md")),
];

/// What a page says that Prometheus shall evaluate.
fn expressions(page: &'static str) -> impl Iterator<Item = &'static str> {
    page.lines().filter_map(|line| line.trim().strip_prefix("expr: "))
}

#[test]
fn alert_rules_are_evaluated() {
    let mut all = 0;
    for (page, text) in PAGES {
        for expression in expressions(text) {
            let empty = Memory::default();
            let answer = now(plinth_promql::instant(&empty, expression, 0, &Options::default()));
            let answer = answer.unwrap_or_else(|error| panic!("{page}: {expression}: {error}"));
            assert!(
                matches!(answer.value, Answered::Vector(series) if series.is_empty()),
                "{expression}"
            );
            all += 1;
        }
    }
    assert!(all > 20, "{all} rules are on the pages");
}

/// Those of a kind that was refused before, over series at which they have to fire.
#[test]
fn alert_rules_fire() {
    let mut memory = Memory::default();
    for line in [
        r#"up{job="plinth", instance="a"} 1 1 1 1 1 1 1 1 1 1 0"#,
        r#"plinth_disk_free_bytes{instance="a"} 1000000000-50000000x10"#,
        r#"plinth_disk_kept_bytes{instance="a"} 1000000x10"#,
        r#"plinth_log_sync_seconds_bucket{le="0.1"} 0+1x10"#,
        r#"plinth_log_sync_seconds_bucket{le="1"} 0+2x10"#,
        r#"plinth_log_sync_seconds_bucket{le="+Inf"} 0+2x10"#,
        r#"plinth_commits_total{outcome="conflicted"} 0+9x10"#,
        r#"plinth_commits_total{outcome="committed"} 0+4x10"#,
        r#"plinth_peer_connected{job="plinth", address="b", instance="a"} 0x10"#,
    ] {
        assert!(load(&mut memory, line, 60 * SECOND), "{line}");
    }
    for beginning in [
        "up{",
        "predict_linear(",
        "histogram_quantile(",
        "rate(plinth_commits_total",
        "sum by (job, address)",
    ] {
        let expression = PAGES.iter().flat_map(|(_, text)| expressions(text));
        let expression = expression.into_iter().find(|text| text.starts_with(beginning)).unwrap();
        let answer =
            now(plinth_promql::instant(&memory, expression, 600 * SECOND, &Options::default()));
        let Answered::Vector(series) = answer.unwrap().value else { panic!("{expression}") };
        assert_eq!(series.len(), 1, "{expression}");
    }
}
