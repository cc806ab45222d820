//! The exceptions to the limits on size: a list that only shrinks.
//!
//! `exceptions.txt` names what is larger than its limit and how large it is. An exception fits
//! exactly or the check fails: what grew must shrink back, what shrank gets its line lowered, what
//! fits now loses its line. The list also states how many lines it has: a number that reviewers see
//! go down.

use crate::finding::Finding;

/// The list, from the repository's root.
pub const LIST: &str = "xtask/exceptions.txt";

/// Takes the listed exceptions off `findings`, and adds what is wrong with the list.
pub fn apply(list: &str, findings: &mut Vec<Finding>) {
    let (mut stated, mut count) = (0, 0);
    let lines = list
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    for (index, line) in lines {
        if let Some(number) = line.strip_prefix("exceptions: ") {
            stated = number.trim().parse().unwrap_or(0);
            continue;
        }
        count += 1;
        if let Err((what, remedy)) = except(line, findings) {
            findings.push(Finding::new("exception", LIST, index + 1, what, remedy));
        }
    }
    if count != stated {
        let what = format!("{count} exceptions, and the list states {stated}");
        let remedy = if count < stated {
            "lower the number"
        } else {
            "split what is too large; the list only shrinks"
        };
        findings.push(Finding::new("exception", LIST, 0, what, remedy));
    }
}

/// One line: `rule path[:item] size reason`. Takes the finding it excepts off, if it fits.
fn except(line: &str, findings: &mut Vec<Finding>) -> Result<(), (String, String)> {
    let fields: Vec<&str> = line.splitn(4, ' ').collect();
    let [rule, place, size, _reason] = fields[..] else {
        return Err((
            "not of the form `rule path[:item] size reason`".into(),
            "write it so".into(),
        ));
    };
    let (path, item) = place.split_once(':').unwrap_or((place, ""));
    let excepted = |finding: &Finding| {
        let found = finding.size.as_ref().map(|(item, _)| item.as_str());
        finding.rule == rule && finding.path == path && found == Some(item)
    };
    let Some(index) = findings.iter().position(excepted) else {
        return Err((format!("{place} keeps the limit now"), "remove the line".into()));
    };
    let measured = findings[index].size.as_ref().map_or(0, |(_, size)| *size);
    findings.remove(index);
    match size.parse::<usize>() {
        Ok(listed) if measured == listed => Ok(()),
        Ok(listed) if measured > listed => Err((
            format!("{place} grew from {listed} to {measured}"),
            "make it smaller again".into(),
        )),
        _ => {
            Err((format!("{place} has {measured} now"), format!("lower the number to {measured}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding::new("function-length", "a.rs", 3, "long", "split").with_size("f", 90)
    }

    /// What is wrong with the line, and how many findings are left.
    fn outcome(line: &str) -> (Result<(), String>, usize) {
        let mut findings = vec![finding()];
        let result = except(line, &mut findings).map_err(|(what, _)| what);
        (result, findings.len())
    }

    #[test]
    fn an_exception_fits_exactly() {
        assert_eq!(outcome("function-length a.rs:f 90 a state machine"), (Ok(()), 0));
        assert_eq!(
            outcome("function-length a.rs:f 89 x"),
            (Err("a.rs:f grew from 89 to 90".into()), 0)
        );
        assert_eq!(outcome("function-length a.rs:f 91 x"), (Err("a.rs:f has 90 now".into()), 0));
    }

    #[test]
    fn an_exception_is_needed() {
        assert_eq!(
            outcome("function-length a.rs:g 90 x"),
            (Err("a.rs:g keeps the limit now".into()), 1)
        );
        assert_eq!(outcome("file-length a.rs 900 x").1, 1);
        assert!(outcome("function-length a.rs:f 90").0.is_err(), "a reason is asked for");
    }

    #[test]
    fn the_list_states_its_length() {
        let whats = |list: &str| {
            let mut findings = vec![finding()];
            apply(list, &mut findings);
            findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        let line = "function-length a.rs:f 90 a state machine";
        assert_eq!(whats(&format!("# comment\n\nexceptions: 1\n{line}\n")), [""; 0]);
        assert_eq!(
            whats(&format!("exceptions: 2\n{line}\n")),
            ["1 exceptions, and the list states 2"]
        );
        assert_eq!(whats(line), ["1 exceptions, and the list states 0"]);
        assert_eq!(whats("exceptions: 0\n"), ["long"]);
    }
}
