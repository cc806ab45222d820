//! Sizes: a file, a function, a struct that one person can hold in mind, and no blobs.
//!
//! The limits are where readable Rust databases end (a function's median is five to eight lines,
//! two in a hundred are longer than seventy). Whatever must be larger for a while stands in
//! `exceptions.txt`.

use crate::finding::Finding;
use crate::repository::Repository;

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
const STRUCT_FIELDS: usize = 12;
/// Configuration has a field for each thing that can be set, so it may have more.
const CONFIGURATION_FIELDS: usize = 15;
/// How the names of configuration end.
const CONFIGURATION: [&str; 3] = ["Config", "Options", "Settings"];
const FILE_BYTES: u64 = 512 << 10;

/// Source files of at most 800 lines.
pub fn files(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, source) in repository.sources() {
        let lines = source.text().lines().count();
        if lines > FILE_LINES {
            let what = format!("{lines} lines; the limit is {FILE_LINES}");
            let remedy = "split it by what its parts are for; unit tests go to a file of their own";
            findings.push(Finding::new("file-length", path, 0, what, remedy).with_size("", lines));
        }
    }
}

/// How many fields a struct may have.
fn fields_most(name: &str) -> usize {
    let is_configuration = CONFIGURATION.iter().any(|ending| name.ends_with(ending));
    if is_configuration { CONFIGURATION_FIELDS } else { STRUCT_FIELDS }
}

/// Functions of at most 70 lines, structs of at most 12 fields, or 15 of configuration.
pub fn functions_and_structs(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, source) in repository.sources() {
        for function in
            source.functions().into_iter().filter(|function| function.size > FUNCTION_LINES)
        {
            let what = format!(
                "fn {} has {} lines; the limit is {FUNCTION_LINES}",
                function.name, function.size
            );
            let remedy = "give its steps names: one function each";
            let finding = Finding::new("function-length", path, function.line, what, remedy);
            findings.push(finding.with_size(&function.name, function.size));
        }
        for item in source.structs() {
            let most = fields_most(&item.name);
            if item.size <= most {
                continue;
            }
            let what =
                format!("struct {} has {} fields; the limit is {most}", item.name, item.size);
            let remedy = "group the fields by lifetime and owner, and name each group";
            let finding = Finding::new("struct-fields", path, item.line, what, remedy);
            findings.push(finding.with_size(&item.name, item.size));
        }
    }
}

/// No file over half a mebibyte: a repository remembers them for ever.
pub fn weight(repository: &Repository, findings: &mut Vec<Finding>) {
    for file in repository.files().filter(|file| file.bytes > FILE_BYTES) {
        let what = format!("{} bytes; the limit is {FILE_BYTES}", file.bytes);
        let remedy = "generate it in the test that needs it, from a seed, or keep a smaller sample";
        findings.push(Finding::new("weight", &file.path, 0, what, remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    #[test]
    fn a_file_may_have_800_lines() {
        let (good, bad) = ("\n".repeat(800), "\n".repeat(801));
        assert_eq!(
            found(files, &[("good.rs", &good), ("bad.rs", &bad), ("long.md", &bad)]),
            ["bad.rs:0 file-length"]
        );
    }

    #[test]
    fn a_function_may_have_70_lines() {
        let function = |lines: usize| format!("\nfn f() {{{}}}\n", "\n".repeat(lines - 1));
        let files = [("good.rs", &function(70)[..]), ("bad.rs", &function(71))];
        assert_eq!(found(functions_and_structs, &files), ["bad.rs:2 function-length"]);
    }

    #[test]
    fn a_struct_may_have_12_fields_and_configuration_15() {
        let of = |name: &str, count: usize| {
            let fields: String = (0..count).map(|n| format!("f{n}: u8,")).collect();
            format!("struct {name} {{ {fields} }}")
        };
        let files = [
            ("good.rs", &of("S", 12)[..]),
            ("bad.rs", &of("S", 13)),
            ("good_config.rs", &of("NodeConfig", 15)),
            ("bad_config.rs", &of("Options", 16)),
        ];
        assert_eq!(
            found(functions_and_structs, &files),
            ["bad.rs:1 struct-fields", "bad_config.rs:1 struct-fields"]
        );
    }

    #[test]
    fn a_file_may_weigh_half_a_mebibyte() {
        let (good, bad) = ("x".repeat(512 << 10), "x".repeat((512 << 10) + 1));
        assert_eq!(found(weight, &[("good.bin", &good), ("bad.bin", &bad)]), ["bad.bin:0 weight"]);
    }
}
