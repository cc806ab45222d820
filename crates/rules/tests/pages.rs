//! The rules that our pages give to people to paste are rules here too.

use crate::common::*;
use plinth_rules::Options;

/// The blocks of a page that are files of rules.
fn blocks(page: &'static str) -> Vec<&'static str> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("groups:") && !block.contains("scrape_configs")).collect()
}

#[test]
fn the_rules_of_the_pages_are_rules_and_are_evaluated_without_an_error() {
    let pages = [
        include_str!("../../../docs/monitoring.md"),
        include_str!("../../../docs/series-rules.md"),
    ];
    for page in pages {
        let blocks = blocks(page);
        assert!(!blocks.is_empty());
        for block in blocks {
            for mut group in groups(block, &Options::default()) {
                let series = Series::default();
                for minute in 1..=60 {
                    run(&mut group, &series, minute * MINUTE);
                    assert_eq!(errors(&group), [""; 0]);
                }
            }
        }
    }
}
