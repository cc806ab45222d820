//! What is wrong with a file is told before a server begins with it: where, in which group and
//! rule, and what.
//!
//! Most of it is in Prometheus' words; what Prometheus finds out only when an alert fires is told
//! here too. Hostile files are refused before they cost anything.

use plinth_rules::{RuleKind, parse};

fn faults(text: &str) -> Vec<String> {
    match parse("r.yml", text) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_file_has_all_that_prometheus_has() {
    let text = r#"
# Of a cluster.
groups:
  - name: all
    interval: 30s
    query_offset: 1m
    limit: 10
    labels: {team: db, tier: "1"}
    rules:
      - record: job:up:sum
        expr: sum by (job) (up)
        labels: {tier: 2}
      - alert: Down
        expr: |
          up == 0
            and on (job) other
        for: 5m
        keep_firing_for: 1h30m
        labels: &labels
          severity: page
        annotations:
          summary: "{{ $labels.instance }} is down"
          description: >-
            Of {{ $labels.job }},
            for a while.
      - {alert: Other, expr: vector(1), labels: *labels}
      - {alert: Merged, expr: vector(1), labels: {<<: *labels, a: ~}}
  - name: empty
    rules:
"#;
    let groups = parse("r.yml", text).unwrap();
    assert_eq!(groups.len(), 2);
    let all = &groups[0];
    assert_eq!((all.name.as_str(), all.limit), ("all", 10));
    assert_eq!((all.interval, all.query_offset), (Some(30_000_000_000), 60_000_000_000));
    assert_eq!(all.rules[0].plain_labels().to_string(), r#"{team="db", tier="2"}"#);
    assert_eq!(all.rules[1].expr, "up == 0 and on (job) other");
    let RuleKind::Alert { hold, keep_firing, annotations } = &all.rules[1].kind else {
        panic!("it alerts")
    };
    assert_eq!((*hold, *keep_firing), (300_000_000_000, 5_400_000_000_000));
    assert_eq!(annotations[0].1.text(), "Of {{ $labels.job }}, for a while.");
    for rule in &all.rules[1..] {
        let labels = r#"{severity="page", team="db", tier="1"}"#;
        assert_eq!(rule.plain_labels().to_string(), labels, "{}", rule.name);
    }
    assert!(groups[1].rules.is_empty());
    for nothing in ["", "\n# nothing\n", "groups:\n", "groups: []"] {
        assert!(parse("r.yml", nothing).unwrap().is_empty());
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_where() {
    let text = r#"groups:
- name: g
  intervall: 1m
  rules:
  - record: a
    expr: sum(
  - alert: B
    expr: vector(1)
    for: 5
    labels: {x: '{{ nope }}'}
  - record: c{}
    expr: vector(1)
    for: 5m
    annotations: {a: b}
  - expr: vector(1)
  - alert: D
    record: d
    expr: vector(1)
  - alert: E
    severity: page
- name: g
- rules: []
"#;
    let wanted = [
        r#"r.yml:3:3: group "g": field "intervall" is not known in a group"#,
        r#"r.yml:6:11: group "g", rule 1, "a": could not parse expression: 1:5: parse error: unexpected end of input"#,
        r#"r.yml:9:10: group "g", rule 2, "B": for: not a valid duration string: "5""#,
        r#"r.yml:10:14: group "g", rule 2, "B": label "x": template:1:4: function "nope" not defined"#,
        r#"r.yml:11:13: group "g", rule 3, "c{}": braces present in the recording rule name; should it be in expr?: c{}"#,
        r#"r.yml:13:5: group "g", rule 3, "c{}": invalid field 'for' in recording rule"#,
        r#"r.yml:14:5: group "g", rule 3, "c{}": invalid field 'annotations' in recording rule"#,
        r#"r.yml:15:5: group "g", rule 4, "": one of 'record' or 'alert' must be set"#,
        r#"r.yml:16:12: group "g", rule 5, "D": only one of 'record' and 'alert' must be set"#,
        r#"r.yml:20:5: group "g", rule 6, "E": field "severity" is not known in a rule"#,
        r#"r.yml:19:5: group "g", rule 6, "E": field 'expr' must be set in rule"#,
        r#"r.yml:21:3: groupname: "g" is repeated in the same file"#,
        r#"r.yml:22:3: Groupname must not be empty"#,
    ];
    let found = faults(text);
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}\n{wanted}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
}

#[test]
fn what_is_no_file_of_rules_is_refused() {
    for (text, why) in [
        ("groups: [", "this is no YAML"),
        ("a: b: c", "this is no YAML"),
        ("- a", "a file of rules: a mapping expected, not a list"),
        ("groups: 1", "groups: a list expected, not a text"),
        ("groups: [1]", "a group: a mapping expected, not a text"),
        ("groups: []\ngroups: []", "the key \"groups\" is there twice"),
        ("groups: []\n---\ngroups: []", "one document"),
        ("groups: !x []", "means nothing here"),
        ("? [a]\n: b", "a key is a text, not a list"),
        ("groups: &g [*g]", "an alias for what it stands in"),
        ("groups: [{name: g, limit: many}]", "limit: \"many\" is no number"),
        ("groups: [{name: g, interval: 10ms}]", "a second at least"),
        ("groups: [{name: g, rules: [{record: 'a|b', expr: '1'}]}]", "invalid recording rule name"),
        ("groups: [{name: g, labels: {__name__: x}}]", "invalid label name"),
        (
            "groups: [{name: g, rules: [{record: a, expr: [1]}]}]",
            "expr: a text expected, not a list",
        ),
        ("\u{0}", ""),
    ] {
        let found = faults(text);
        assert!(!found.is_empty() && found[0].contains(why), "{text}: {found:?}");
    }
}

/// A file of a kilobyte that means a gigabyte, or a stack of a thousand frames.
#[test]
fn hostile_files_are_refused_soon() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..20 {
        let before = level - 1;
        let many = vec![format!("*a{before}"); 10].join(", ");
        laughs += &format!("a{level}: &a{level} [{many}]\n");
    }
    assert!(faults(&laughs)[0].contains("copies of aliases included"), "{:?}", faults(&laughs));
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), vec!["*a"; 100].join(", "));
    assert!(faults(&long)[0].contains("copies of aliases included"));
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let deep = open.repeat(20_000) + &close.repeat(20_000);
        assert!(!faults(&deep).is_empty());
    }
    let indented: String = (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(faults(&indented)[0].contains("levels deep"));
    assert!(faults(&"# x\n".repeat(2 << 20))[0].contains("larger than"));
    let rules = "{record: a, expr: '1'},".repeat(30_000);
    assert!(
        faults(&format!("groups: [{{name: g, rules: [{rules}]}}]"))[0]
            .contains("more than 20000 rules")
    );
}
