//! What the status document says of continuous backups and of a second site, in lines for people:
//! the shell's `status`, and `plinth top`.

use plinth_bench::Value;

/// Continuous backups that go on, a line each.
pub fn backups(document: &Value) -> Vec<String> {
    let tags = document.pointer("/cluster/layers/backup/tags").and_then(Value::as_object);
    let going = tags.into_iter().flatten().filter(|(_, tag)| tag["running_backup"] == true);
    let line = |(name, tag): (&String, &Value)| {
        let behind = tag["last_restorable_seconds_behind"].as_f64().unwrap_or_default();
        let state = tag["current_status"].as_str().unwrap_or_default();
        let state = ["paused", "discontinuing", "aborting"].iter().find(|name| **name == state);
        let state = state.map_or(String::new(), |state| format!(", {state}"));
        let is = match (tag["running_backup_is_restorable"].as_bool(), tag["error"].as_str()) {
            (_, Some(error)) => format!("gets no further: {error}"),
            (Some(true), None) => format!("{behind:.1} s behind"),
            _ => "can't be restored yet".to_owned(),
        };
        let broken = if tag["broken"].as_u64() > Some(0) { ", BROKEN before" } else { "" };
        format!(
            "{name} to {}: {is}{state}{broken}",
            tag["current_container"].as_str().unwrap_or_default()
        )
    };
    going.map(line).collect()
}

/// The sides of a second site that the database has, a line each.
pub fn sites(document: &Value) -> Vec<String> {
    let tags = |layer: &str| {
        document.pointer(&format!("/cluster/layers/{layer}/tags")).and_then(Value::as_object)
    };
    let behind = |tag: &Value| match tag["seconds_behind"].as_f64() {
        Some(seconds) => format!("{seconds:.1} s behind"),
        None => "nobody knows how far behind".to_owned(),
    };
    let first = tags("dr_backup").into_iter().flatten().map(|(name, tag)| {
        match tag["running_backup"] == true {
            true => format!("{name}: this is the first, the second is {}", behind(tag)),
            false => {
                format!("{name}: this is the first; the second HAS LOST ITS STREAM, begin it anew")
            }
        }
    });
    let second = tags("dr_backup_dest").into_iter().flatten().map(|(name, tag)| {
        let state = tag["backup_state"].as_str().unwrap_or_default();
        let why = match (tag["agent"] == false, tag["error"].as_str()) {
            (_, Some(error)) => format!("; gets no further: {error}"),
            (true, None) => "; no agent works at it".to_owned(),
            (false, None) => String::new(),
        };
        let half = match tag["has_half"] == true {
            true => ", NOT WHOLE while something is being restored into the first",
            false => "",
        };
        format!("{name}: this is the second, {state}, {}{half}{why}", behind(tag))
    });
    first.chain(second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_and_sites_are_told_in_a_line_each() {
        let document: Value = r#"{"cluster": {"layers": {
            "backup": {"tags": {
                "a": {"running_backup": true, "running_backup_is_restorable": true, "current_container": "/b",
                      "current_status": "discontinuing", "last_restorable_seconds_behind": 0.5, "broken": 1, "error": null},
                "b": {"running_backup": true, "current_container": "/c", "error": "no room"},
                "c": {"running_backup": false}}},
            "dr_backup": {"tags": {
                "a": {"running_backup": true, "seconds_behind": 0.25}, "b": {"running_backup": false}}},
            "dr_backup_dest": {"tags": {
                "a": {"backup_state": "following", "seconds_behind": 2.0, "agent": false, "error": null},
                "b": {"backup_state": "following", "seconds_behind": 2.0, "has_half": true, "error": null}}}}}}"#
            .parse()
            .unwrap();
        assert_eq!(
            backups(&document),
            [
                "a to /b: 0.5 s behind, discontinuing, BROKEN before",
                "b to /c: gets no further: no room"
            ]
        );
        assert_eq!(
            sites(&document),
            [
                "a: this is the first, the second is 0.2 s behind",
                "b: this is the first; the second HAS LOST ITS STREAM, begin it anew",
                "a: this is the second, following, 2.0 s behind; no agent works at it",
                "b: this is the second, following, 2.0 s behind, NOT WHOLE while something is being restored into the first",
            ]
        );
        assert!(backups(&Value::Null).is_empty() && sites(&Value::Null).is_empty());
    }
}
