//! Layering: which crate of the workspace may use which, in one table, compared with what cargo
//! says.
//!
//! A crate uses lower levels only, so that each can be read, built and tested with nothing above
//! it. The table says more than the level: an edge that is not in it is a decision, and belongs
//! into a commit that says why.

use crate::finding::Finding;
use crate::packages::{self, Member};
use crate::{Result, repository::Repository};

/// One crate: its place in the order, and what it may use.
struct Layer {
    level: u32,
    name: &'static str,
    uses: &'static [&'static str],
    /// What its tests may use besides.
    tests_use: &'static [&'static str],
}

/// The level of what nobody may use, other leaves aside that name it.
const LEAF: u32 = 9;

const LAYERS: &[Layer] = &[
    Layer { level: 0, name: "plinth-types", uses: &[], tests_use: &[] },
    Layer { level: 0, name: "plinth-usdt", uses: &[], tests_use: &[] },
    Layer { level: 1, name: "plinth-env", uses: &["plinth-types"], tests_use: &[] },
    Layer { level: 1, name: "plinth-format", uses: &["plinth-types"], tests_use: &[] },
    Layer { level: 1, name: "plinth-resolver", uses: &["plinth-types"], tests_use: &[] },
    Layer { level: 1, name: "plinth-promql", uses: &["plinth-types"], tests_use: &[] },
    Layer { level: 1, name: "plinth-proto", uses: &["plinth-types"], tests_use: &[] },
    Layer {
        level: 2,
        name: "plinth-rules",
        uses: &["plinth-types", "plinth-env", "plinth-promql"],
        tests_use: &[],
    },
    Layer {
        level: 2,
        name: "plinth-log",
        uses: &["plinth-types", "plinth-usdt", "plinth-env", "plinth-format"],
        tests_use: &[],
    },
    Layer {
        level: 2,
        name: "plinth-storage",
        uses: &["plinth-types", "plinth-env", "plinth-format"],
        tests_use: &[],
    },
    Layer {
        level: 2,
        name: "plinth-telemetry",
        uses: &["plinth-types", "plinth-env"],
        tests_use: &[],
    },
    Layer { level: 2, name: "plinth-tls", uses: &["plinth-types", "plinth-env"], tests_use: &[] },
    Layer {
        level: 3,
        name: "plinth-replication",
        uses: &["plinth-types", "plinth-env", "plinth-log"],
        tests_use: &[],
    },
    Layer {
        level: 3,
        name: "plinth-client",
        uses: &["plinth-types", "plinth-env", "plinth-proto", "plinth-tls"],
        tests_use: &[],
    },
    Layer {
        level: 4,
        name: "plinth-pipeline",
        uses: &[
            "plinth-types",
            "plinth-usdt",
            "plinth-env",
            "plinth-format",
            "plinth-resolver",
            "plinth-log",
            "plinth-replication",
            "plinth-storage",
            "plinth-client",
        ],
        tests_use: &[],
    },
    Layer {
        level: 4,
        name: "plinth-peers",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-format",
            "plinth-proto",
            "plinth-tls",
            "plinth-replication",
        ],
        tests_use: &["plinth-log"],
    },
    Layer {
        level: 4,
        name: "plinth-fdb",
        uses: &["plinth-types", "plinth-env", "plinth-client"],
        // Loaded at run time, as any C library would be.
        tests_use: &["plinth-capi"],
    },
    Layer {
        level: 4,
        name: "plinth-migrate",
        uses: &["plinth-types", "plinth-env", "plinth-client"],
        tests_use: &["plinth"],
    },
    Layer {
        level: 4,
        name: "plinth-dr",
        uses: &["plinth-types", "plinth-env", "plinth-client"],
        tests_use: &["plinth"],
    },
    Layer {
        level: 4,
        name: "plinth-backup",
        // TLS towards object stores.
        uses: &["plinth-types", "plinth-env", "plinth-format", "plinth-client", "plinth-tls"],
        // Who makes a directory of rows.
        tests_use: &["plinth"],
    },
    Layer {
        level: 4,
        name: "plinth-series",
        uses: &["plinth-types", "plinth-env", "plinth-client", "plinth-promql"],
        tests_use: &["plinth"],
    },
    Layer {
        level: 5,
        name: "plinth",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-client",
            "plinth-pipeline",
            "plinth-fdb",
            "plinth-backup",
            "plinth-series",
        ],
        tests_use: &[],
    },
    Layer {
        level: 5,
        name: "plinth-server",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-proto",
            "plinth-tls",
            "plinth-client",
            "plinth-peers",
            "plinth-series",
            // Rules that are evaluated over the series, and the points that they give.
            "plinth-promql",
            "plinth-rules",
        ],
        // Whose own tests run against a server as well.
        tests_use: &["plinth-pipeline", "plinth", "plinth-migrate"],
    },
    Layer {
        level: 6,
        name: "plinth-capi",
        uses: &["plinth-types", "plinth-env", "plinth-client", "plinth-pipeline"],
        tests_use: &[],
    },
    Layer {
        level: LEAF,
        name: "plinth-bench",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-client",
            "plinth-backup",
            "plinth-dr",
            "plinth-series",
        ],
        tests_use: &["plinth"],
    },
    Layer {
        level: LEAF,
        name: "plinth-sim",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-proto",
            "plinth-resolver",
            "plinth-log",
            "plinth-replication",
            "plinth-storage",
            "plinth-client",
            "plinth-pipeline",
            "plinth-peers",
            "plinth-backup",
            "plinth-dr",
            "plinth-server",
            "plinth",
        ],
        tests_use: &[],
    },
    Layer {
        level: LEAF,
        name: "plinth-cli",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-telemetry",
            "plinth-tls",
            "plinth",
            "plinth-peers",
            "plinth-server",
            "plinth-bench",
            "plinth-migrate",
            "plinth-dr",
            "plinth-rules",
            "plinth-sim",
        ],
        tests_use: &["plinth-capi", "plinth-series"],
    },
    Layer {
        level: LEAF,
        name: "plinth-fuzz",
        uses: &[
            "plinth-types",
            "plinth-env",
            "plinth-proto",
            "plinth-tls",
            "plinth-log",
            "plinth-replication",
            "plinth-peers",
            "plinth-client",
            "plinth-series",
            "plinth-promql",
            "plinth-rules",
            "plinth-pipeline",
            "plinth-server",
        ],
        tests_use: &[],
    },
    Layer { level: LEAF, name: "xtask", uses: &[], tests_use: &[] },
];

const TABLE: &str = "xtask/src/layering.rs";

/// Compares the workspace's edges with the table.
pub fn check(repository: &Repository) -> Result<Vec<Finding>> {
    let normal = packages::members("normal,build")?;
    let tests = packages::members("dev")?;
    Ok(compare(LAYERS, &normal, &tests, |package, used| place(repository, package, used)))
}

fn compare(
    layers: &[Layer],
    normal: &[Member],
    tests: &[Member],
    place: impl Fn(&str, &str) -> (String, usize),
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (members, for_tests) in [(normal, false), (tests, true)] {
        for member in members {
            let Some(layer) = layers.iter().find(|layer| layer.name == member.name) else {
                if !for_tests {
                    let (path, _) = place(&member.name, "");
                    let what = format!("{} has no line in the table of layers", member.name);
                    findings.push(Finding::new(
                        "layering",
                        &path,
                        0,
                        what,
                        format!("give it one in {TABLE}"),
                    ));
                }
                continue;
            };
            let ours = |used: &&String| normal.iter().any(|member| member.name == **used);
            for used in member.uses.iter().filter(ours) {
                let listed = |list: &[&str]| list.contains(&used.as_str());
                if *used != member.name
                    && !listed(layer.uses)
                    && !(for_tests && listed(layer.tests_use))
                {
                    let (path, line) = place(&member.name, used);
                    let tests = if for_tests { " in its tests" } else { "" };
                    let what = format!(
                        "{} (level {}) may not use {used}{tests}",
                        member.name, layer.level
                    );
                    let remedy = format!(
                        "move what is needed to a lower crate, or argue for the edge in {TABLE}"
                    );
                    findings.push(Finding::new("layering", &path, line, what, remedy));
                }
            }
        }
    }
    for layer in
        layers.iter().filter(|layer| !normal.iter().any(|member| member.name == layer.name))
    {
        let what = format!("the table names {}, which is no package here", layer.name);
        findings.push(Finding::new("layering", TABLE, 0, what, "remove its line"));
    }
    findings
}

/// The manifest of `package`, and the line on which it names `used`.
fn place(repository: &Repository, package: &str, used: &str) -> (String, usize) {
    let own = format!("name = \"{package}\"");
    let manifest =
        repository.texts("Cargo.toml").find(|(_, text)| text.lines().any(|line| line == own));
    let Some((path, text)) = manifest else { return ("Cargo.toml".to_string(), 0) };
    let declared =
        crate::manifest::dependencies(text).into_iter().find(|declared| declared.name == used);
    (path.to_string(), declared.map_or(0, |declared| declared.line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: [Layer; 3] = [
        Layer { level: 0, name: "low", uses: &[], tests_use: &["high"] },
        Layer { level: 1, name: "high", uses: &["low"], tests_use: &[] },
        Layer { level: LEAF, name: "leaf", uses: &["high"], tests_use: &[] },
    ];

    fn members(edges: &[(&str, &[&str])]) -> Vec<Member> {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        edges
            .iter()
            .map(|(name, uses)| Member { name: name.to_string(), uses: owned(uses) })
            .collect()
    }

    fn whats(normal: &[(&str, &[&str])], tests: &[(&str, &[&str])]) -> Vec<String> {
        let place = |package: &str, _: &str| (format!("{package}/Cargo.toml"), 7);
        let found = compare(&SAMPLE, &members(normal), &members(tests), place);
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn listed_edges_and_foreign_crates_are_fine() {
        let normal: [(&str, &[&str]); 3] =
            [("low", &["libc"]), ("high", &["low", "libc"]), ("leaf", &["high"])];
        assert_eq!(whats(&normal, &[("low", &["high", "low"])]), [""; 0]);
    }

    #[test]
    fn an_edge_that_is_not_listed_is_found() {
        let normal: [(&str, &[&str]); 3] =
            [("low", &["high"]), ("high", &["leaf"]), ("leaf", &["low"])];
        let expected = [
            "low (level 0) may not use high",
            "high (level 1) may not use leaf",
            "leaf (level 9) may not use low",
        ];
        assert_eq!(whats(&normal, &[]), expected);
    }

    #[test]
    fn test_edges_have_a_list_of_their_own() {
        let normal: [(&str, &[&str]); 3] = [("low", &[]), ("high", &[]), ("leaf", &[])];
        assert_eq!(
            whats(&normal, &[("high", &["leaf"])]),
            ["high (level 1) may not use leaf in its tests"]
        );
    }

    #[test]
    fn table_and_workspace_name_the_same_packages() {
        let normal: [(&str, &[&str]); 3] = [("low", &[]), ("high", &[]), ("new", &[])];
        let expected = [
            "new has no line in the table of layers",
            "the table names leaf, which is no package here",
        ];
        assert_eq!(whats(&normal, &[]), expected);
    }

    #[test]
    fn the_table_itself_goes_downwards() {
        let level =
            |name: &str| LAYERS.iter().find(|layer| layer.name == name).map(|layer| layer.level);
        for (index, layer) in LAYERS.iter().enumerate() {
            assert!(
                !LAYERS[..index].iter().any(|other| other.name == layer.name),
                "{} twice",
                layer.name
            );
            for used in layer.uses {
                let below = level(used).is_some_and(|used| used < layer.level);
                let earlier_leaf =
                    level(used) == Some(LEAF) && LAYERS[..index].iter().any(|l| l.name == *used);
                assert!(
                    below || (layer.level == LEAF && earlier_leaf),
                    "{} uses {used}",
                    layer.name
                );
            }
        }
    }
}
