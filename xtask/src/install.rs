//! `cargo xtask install`: the program, the C library with its headers, and what pkg-config and
//! CMake want to know of them.
//!
//! ```text
//!   PREFIX/bin/plinth
//!   PREFIX/lib/libfdb_c.so                        and libplinth.so, the same file by another name
//!   PREFIX/lib/pkgconfig/{foundationdb-client,plinth}.pc
//!   PREFIX/lib/cmake/{FoundationDB-Client,Plinth}/
//!   PREFIX/include/foundationdb/
//!   PREFIX/share/man/man1/, and completions where bash, zsh and fish look for them
//! ```
//! Program and library are stripped; what debuggers want lies in `.debug/` beside each. The names
//! are those that FoundationDB's own packages use, so that programs find one as they find the
//! other. With DESTDIR everything goes below that directory, but is written as if it lay in PREFIX:
//! so packages are made.

use crate::{Result, cargo, command, elf};
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

/// What pkg-config knows, and which library each stands for.
pub const PKG_CONFIG: [(&str, &str); 2] = [("foundationdb-client", "fdb_c"), ("plinth", "plinth")];

/// Where things go, and from which build.
#[derive(Debug, PartialEq, Eq)]
struct Arguments<'a> {
    prefix: &'a str,
    destdir: &'a str,
    profile: &'a str,
}

/// Builds and installs.
pub fn run(arguments: &[&str]) -> Result<bool> {
    let arguments = parse(arguments)?;
    if !cargo::build_products(arguments.profile)? {
        return Ok(false);
    }
    let built = target().join(if arguments.profile == "dev" { "debug" } else { arguments.profile });
    let (prefix, destdir) = (arguments.prefix, arguments.destdir);
    lay_out(prefix, destdir, &built)?;
    if elf::can_split() {
        for (directory, name) in [("bin", program()), ("lib", library("fdb_c"))] {
            let directory = below(destdir, prefix, directory);
            let beside = directory.join(".debug");
            std::fs::create_dir_all(&beside)
                .map_err(|e| format!("make {}: {e}", beside.display()))?;
            let stripped = directory.join(format!("{name}.new"));
            elf::split(&built.join(&name), &stripped, &beside.join(format!("{name}.debug")))?;
            let installed = directory.join(name);
            std::fs::rename(&stripped, &installed)
                .map_err(|e| format!("install {}: {e}", installed.display()))?;
        }
    }
    println!("installed in {}", below(destdir, prefix, "").display());
    Ok(true)
}

/// Puts all files where they belong. `built` has the program and the library.
pub fn lay_out(prefix: &str, destdir: &str, built: &Path) -> Result<()> {
    for (path, from) in files(built, prefix)? {
        place(&below(destdir, prefix, &path), &from)?;
    }
    alias(&below(destdir, prefix, "lib").join(library("plinth")), &library("fdb_c"))?;
    let pages = below(destdir, prefix, "share/man/man1");
    command::run(built.join(program()), &["man-pages", &pages.to_string_lossy()])
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Arguments<'a>> {
    let mut parsed = Arguments { prefix: "/usr/local", destdir: "", profile: "release" };
    let mut rest = arguments.iter().copied();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} wants a value"));
        match argument {
            "--prefix" => parsed.prefix = value()?,
            "--destdir" => parsed.destdir = value()?,
            "--profile" => parsed.profile = value()?,
            other => {
                return Err(format!("install knows --prefix, --destdir, --profile, not '{other}'"));
            }
        }
    }
    if !Path::new(parsed.prefix).is_absolute() {
        return Err(format!("the prefix {} is no absolute path", parsed.prefix));
    }
    Ok(parsed)
}

/// What a file is made of.
enum Content {
    /// A copy, with its permissions.
    Copy(PathBuf),
    Text(String),
}

fn files(built: &Path, prefix: &str) -> Result<Vec<(String, Content)>> {
    let program = program();
    let mut files = vec![
        (format!("bin/{program}"), Content::Copy(built.join(&program))),
        (format!("lib/{}", library("fdb_c")), Content::Copy(built.join(library("fdb_c")))),
    ];
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/plinth"),
        ("zsh", "share/zsh/site-functions/_plinth"),
        ("fish", "share/fish/vendor_completions.d/plinth.fish"),
    ] {
        let text = command::output(built.join(&program), &["completions", shell])?;
        files.push((path.to_owned(), Content::Text(text)));
    }
    let headers = Path::new("crates/capi/include/foundationdb");
    for entry in
        std::fs::read_dir(headers).map_err(|e| format!("list {}: {e}", headers.display()))?
    {
        let entry = entry.map_err(|e| format!("list {}: {e}", headers.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((format!("include/foundationdb/{name}"), Content::Copy(entry.path())));
    }
    for (package, link, directory, target) in [
        ("foundationdb-client", "fdb_c", "FoundationDB-Client", "fdb_c"),
        ("plinth", "plinth", "Plinth", "Plinth::plinth"),
    ] {
        let text = Content::Text(pkg_config(prefix, "lib", package, link));
        files.push((format!("lib/pkgconfig/{package}.pc"), text));
        let text = Content::Text(cmake(target, link));
        files.push((format!("lib/cmake/{directory}/{directory}Config.cmake"), text));
        let text = Content::Text(cmake_version());
        files.push((format!("lib/cmake/{directory}/{directory}ConfigVersion.cmake"), text));
    }
    Ok(files)
}

/// The program's file name.
pub fn program() -> String {
    format!("plinth{}", std::env::consts::EXE_SUFFIX)
}

/// A library's.
pub fn library(name: &str) -> String {
    format!("{DLL_PREFIX}{name}{DLL_SUFFIX}")
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// What pkg-config reads. A prefix of `${pcfiledir}/../..` lets an installation be moved.
pub fn pkg_config(prefix: &str, lib: &str, package: &str, link: &str) -> String {
    format!(
        "prefix={prefix}\nlibdir=${{prefix}}/{lib}\nincludedir=${{prefix}}/include\n\n\
         Name: {package}\nDescription: FoundationDB's C API, with Plinth behind it\nVersion: {}\n\n\
         Libs: -L${{libdir}} -l{link}\nCflags: -I${{includedir}}\n",
        version()
    )
}

/// The library is found from the file's own place, so that an installation may be moved.
fn cmake(target: &str, link: &str) -> String {
    let name = library(link);
    format!(
        "get_filename_component(_plinth_lib \"${{CMAKE_CURRENT_LIST_DIR}}/../..\" ABSOLUTE)\n\
         if(NOT TARGET {target})\n\
         \x20 add_library({target} SHARED IMPORTED)\n\
         \x20 set_target_properties({target} PROPERTIES\n\
         \x20   IMPORTED_LOCATION \"${{_plinth_lib}}/{name}\"\n\
         \x20   INTERFACE_INCLUDE_DIRECTORIES \"${{_plinth_lib}}/../include\")\n\
         endif()\n\
         unset(_plinth_lib)\n"
    )
}

fn cmake_version() -> String {
    format!(
        "set(PACKAGE_VERSION \"{}\")\n\
         if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)\n\
         \x20 set(PACKAGE_VERSION_COMPATIBLE FALSE)\n\
         else()\n\
         \x20 set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
         \x20 if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)\n\
         \x20   set(PACKAGE_VERSION_EXACT TRUE)\n\
         \x20 endif()\n\
         endif()\n",
        version()
    )
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// A path of the prefix below the destination.
fn below(destdir: &str, prefix: &str, path: &str) -> PathBuf {
    let inside = if destdir.is_empty() { prefix } else { prefix.trim_start_matches('/') };
    Path::new(destdir).join(inside).join(path)
}

/// Puts a file where it belongs, by a name beside it first: a program that runs keeps the file it
/// has.
fn place(to: &Path, content: &Content) -> Result<()> {
    let failed = |e: std::io::Error| format!("install {}: {e}", to.display());
    let parent = to.parent().ok_or("a file lies in a directory")?;
    std::fs::create_dir_all(parent).map_err(failed)?;
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let written = match content {
        Content::Copy(from) => std::fs::copy(from, &beside).map(|_| ()),
        Content::Text(text) => std::fs::write(&beside, text),
    };
    written.map_err(failed)?;
    std::fs::rename(&beside, to).map_err(failed)
}

/// Another name for a file of the same directory.
fn alias(name: &Path, file: &str) -> Result<()> {
    let failed = |e: std::io::Error| format!("install {}: {e}", name.display());
    match std::fs::remove_file(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(file, name);
    #[cfg(not(unix))]
    let linked = std::fs::copy(name.with_file_name(file), name).map(drop);
    linked.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_where() {
        let parsed = parse(&["--prefix", "/opt/plinth", "--destdir", "out"]);
        let expected = Arguments { prefix: "/opt/plinth", destdir: "out", profile: "release" };
        assert_eq!(parsed, Ok(expected));
        assert!(parse(&["--prefix", "relative"]).is_err());
        assert!(parse(&["--prefix"]).is_err());
        assert!(parse(&["--else"]).is_err());
    }

    #[test]
    fn a_destination_goes_before_the_prefix() {
        assert_eq!(below("", "/usr", "lib/x"), Path::new("/usr/lib/x"));
        assert_eq!(below("stage", "/usr", "lib/x"), Path::new("stage/usr/lib/x"));
    }

    #[test]
    fn what_pkg_config_reads_names_the_prefix_and_the_library() {
        let text = pkg_config("/opt/plinth", "lib", "plinth", "plinth");
        assert!(text.starts_with("prefix=/opt/plinth\n"), "{text}");
        assert!(text.contains("\nLibs: -L${libdir} -lplinth\n"), "{text}");
    }
}
