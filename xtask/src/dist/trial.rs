//! Packages tried as a user would try them, as far as this machine can: unpacked or installed
//! somewhere, then asked to keep a row.
//!
//! It prints what cargo's tests print, so that its tests are counted with all others. What can't be
//! tried here says what is missing and counts as ignored.

use crate::dist::plan::{Kind, Plan, copy, library, list, version, write};
use crate::dist::tools;
use crate::rules::links;
use crate::{Result, command};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a trial ended that didn't fail.
enum Outcome {
    Passed,
    /// What is missing on this machine.
    Skipped(&'static str),
}

mod debian;

use Outcome::{Passed, Skipped};

/// A trial: of which packages, what it shows, and how.
type Trial = (Option<Kind>, &'static str, fn(&Plan) -> Result<Outcome>);

const TRIALS: [Trial; 14] = [
    (None, "checksums are those of the files", sums),
    (Some(Kind::Tarball), "the tarball runs where it is unpacked", tarball),
    (Some(Kind::Tarball), "a C program is built against the tarball", c_program),
    (Some(Kind::Deb), "debian's packages have their files, and run", deb),
    (Some(Kind::Deb), "debian's packages are installed into a root", debian::installed),
    (Some(Kind::Deb), "debian's package is set up, removed and purged", debian::set_up),
    (Some(Kind::Rpm), "fedora's packages have their files, and run", rpm),
    (Some(Kind::Rpm), "fedora's packages are installed into a root", rpm_installed),
    (Some(Kind::Wheel), "the wheel is installed and keeps a row", wheel),
    (Some(Kind::Image), "the image serves a client from a root of its own", image),
    (Some(Kind::Chart), "helm makes what the chart promises", chart),
    (Some(Kind::Chart), "kubernetes' schemas take what helm makes", conforms),
    (Some(Kind::Formula), "ruby can read the formula", formula),
    (Some(Kind::Formula), "a Rust program is built on the sources", rust_program),
];

/// Tries all that were asked for.
pub fn run(plan: &Plan) -> Result<bool> {
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for (kind, name, trial) in TRIALS {
        if kind.is_some_and(|kind| !plan.wants(kind)) {
            continue;
        }
        let begun = std::time::Instant::now();
        match trial(plan) {
            Ok(Passed) => {
                passed += 1;
                println!("test {name} ... ok ({:.1} s)", begun.elapsed().as_secs_f64());
            }
            Ok(Skipped(why)) => {
                ignored += 1;
                println!("test {name} ... ignored: {why}");
            }
            Err(error) => {
                failed += 1;
                println!("test {name} ... FAILED\n{error}");
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored");
    Ok(failed == 0)
}

fn sums(plan: &Plan) -> Result<Outcome> {
    let mut check = Command::new("sha256sum");
    command::text(check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&plan.out))?;
    let sums = std::fs::read_to_string(plan.out.join("SHA256SUMS"))
        .map_err(|e| format!("read SHA256SUMS: {e}"))?;
    let packages = sums.lines().count();
    if packages < plan.kinds.len() {
        return Err(format!("{packages} packages for {:?}:\n{sums}", plan.kinds));
    }
    Ok(Passed)
}

fn tarball(plan: &Plan) -> Result<Outcome> {
    let root = unpacked(plan)?;
    let program = Command::new(root.join("bin/plinth"));
    keeps_a_row(&program, &plan.fresh("try-row")?)?;
    exports_tables(&program, &plan.fresh("try-tables")?)?;
    for file in
        ["share/man/man1/plinth-server.1", "share/zsh/site-functions/_plinth", "CHANGELOG.md"]
    {
        must_be(&root.join(file))?;
    }
    links_lead_somewhere(&root)?;
    command::run(
        "bash",
        &["-n", &root.join("share/bash-completion/completions/plinth").to_string_lossy()],
    )?;
    Ok(Passed)
}

/// The tarball, unpacked anew.
fn unpacked(plan: &Plan) -> Result<PathBuf> {
    let dir = plan.fresh("try-tarball")?;
    let archive = plan.out.join(format!("{}.tar.gz", plan.machine_name()));
    command::run("tar", &["-C", &dir.to_string_lossy(), "-xzf", &archive.to_string_lossy()])?;
    Ok(dir.join(plan.machine_name()))
}

fn c_program(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("cc") || !command::is_there("pkg-config") {
        return Ok(Skipped("there is no cc, or no pkg-config"));
    }
    let root = unpacked(plan)?;
    let mut flags = Command::new("pkg-config");
    flags.args(["--cflags", "--libs", "plinth"]).env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
    let flags = command::text(&mut flags)?;
    let (source, built) = (root.join("try.c"), root.join("try"));
    let text = "#define FDB_API_VERSION 730\n#include <foundationdb/fdb_c.h>\n#include <stdio.h>\n\
        int main(void) { puts(fdb_get_client_version()); return fdb_select_api_version(FDB_API_VERSION); }\n";
    std::fs::write(&source, text).map_err(|e| format!("write {}: {e}", source.display()))?;
    let mut cc = Command::new("cc");
    cc.arg(&source).arg("-o").arg(&built).args(flags.split_whitespace());
    command::text(&mut cc)?;
    let told = command::text(Command::new(&built).env("LD_LIBRARY_PATH", root.join("lib")))?;
    if told.contains("plinth") {
        Ok(Passed)
    } else {
        Err(format!("the library calls itself {told}"))
    }
}

/// The files of the program's package, and of those of the library.
const OF_THE_PROGRAM: [&str; 6] = [
    "usr/bin/plinth",
    "etc/plinth/plinth.toml",
    "usr/share/man/man1/plinth.1.gz",
    "usr/share/bash-completion/completions/plinth",
    "usr/share/doc/plinth/CHANGELOG.md",
    "usr/share/doc/plinth/docs/operations.md",
];

fn deb(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("dpkg-deb") {
        return Ok(Skipped("there is no dpkg-deb"));
    }
    let root = plan.fresh("try-deb")?;
    for name in ["plinth", "libplinth", "libplinth-dev"] {
        let file = debian::package(plan, name)?;
        let file = file.to_string_lossy();
        command::run("dpkg-deb", &["-x", &file, &root.to_string_lossy()])?;
        let told = command::output("dpkg-deb", &["-f", &file, "Version"])?;
        if told.trim() != format!("{}-1", version()) {
            return Err(format!("{name} has the version {told}"));
        }
    }
    let unit = if root.join("lib/systemd").is_dir() { "lib" } else { "usr/lib" };
    must_be(&root.join(unit).join("systemd/system/plinth.service"))?;
    library_is_there(&root, "usr/lib")?;
    OF_THE_PROGRAM.iter().try_for_each(|file| must_be(&root.join(file)))?;
    links_lead_somewhere(&root.join("usr/share/doc/plinth"))?;
    keeps_a_row(&Command::new(root.join("usr/bin/plinth")), &plan.fresh("try-row")?)?;
    Ok(Passed)
}

/// The one file among the packages whose name is like that.
fn find(plan: &Plan, is_it: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let files =
        std::fs::read_dir(&plan.out).map_err(|e| format!("list {}: {e}", plan.out.display()))?;
    let paths = files.flatten().map(|entry| entry.path());
    let mut found: Vec<_> = paths
        .filter(|path| path.file_name().is_some_and(|name| is_it(&name.to_string_lossy())))
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        count => Err(format!("{count} packages, one was to be found: {found:?}")),
    }
}

fn rpm(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("rpm2cpio") || !command::is_there("cpio") {
        return Ok(Skipped("there is no rpm2cpio, or no cpio"));
    }
    let root = plan.fresh("try-rpm")?;
    for name in OF_FEDORA {
        let file = fedora(plan, name)?;
        let unpack = r#"rpm2cpio "$1" | (cd "$2" && cpio --quiet -idm --no-absolute-filenames)"#;
        command::run(
            "sh",
            &["-c", unpack, "sh", &file.to_string_lossy(), &root.to_string_lossy()],
        )?;
    }
    must_be(&root.join("usr/lib/systemd/system/plinth.service"))?;
    library_is_there(&root, "usr/lib64")?;
    OF_THE_PROGRAM.iter().try_for_each(|file| must_be(&root.join(file)))?;
    links_lead_somewhere(&root.join("usr/share/doc/plinth"))?;
    keeps_a_row(&Command::new(root.join("usr/bin/plinth")), &plan.fresh("try-row")?)?;
    Ok(Passed)
}

const OF_FEDORA: [&str; 3] = ["plinth", "libplinth", "libplinth-devel"];

/// One of Fedora's packages.
fn fedora(plan: &Plan, name: &str) -> Result<PathBuf> {
    let begin = format!("{name}-{}-1.", version());
    find(plan, |file| file.starts_with(&begin) && file.ends_with(".rpm"))
}

/// What rpm itself says: that files are as the packages say, and that removing leaves data and
/// changed settings alone.
fn rpm_installed(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("rpm") {
        return Ok(Skipped("there is no rpm"));
    }
    if as_root("rpm")?.is_none() {
        return Ok(Skipped(NO_ROOT));
    }
    let root = plan.fresh("try-rpm-root")?;
    // No system is in there: scripts, which would make users and start servers, are read alone.
    let rpm = |arguments: &[&str]| {
        let mut rpm = as_root("rpm")?.ok_or(NO_ROOT)?;
        command::text(rpm.arg("--root").arg(&root).args(arguments))
    };
    rpm(&["--initdb"])?;
    for name in OF_FEDORA {
        let file = fedora(plan, name)?;
        let file = file.to_string_lossy();
        command::output("rpm", &["--checksig", "--nosignature", &file])?;
        let scripts = command::output("rpm", &["-qp", "--nosignature", "--scripts", &file])?;
        if scripts.contains("/var/lib/plinth") && scripts.contains("rm -") {
            return Err(format!("{name} removes data:\n{scripts}"));
        }
        rpm(&["--install", "--nodeps", "--noscripts", "--nosignature", &file])?;
        rpm(&["--verify", "--nodeps", "--noscripts", name])?;
    }
    let (settings, data) = (root.join("etc/plinth/plinth.toml"), root.join("var/lib/plinth/data"));
    write(&settings, b"# changed\n")?;
    write(&data, b"")?;
    rpm(&["--erase", "--noscripts", "libplinth-devel", "libplinth", "plinth"])?;
    if root.join("usr/bin/plinth").exists() {
        return Err("the program is there after its package was removed".to_owned());
    }
    must_be(&settings.with_extension("toml.rpmsave"))?;
    must_be(&data)?;
    Ok(Passed)
}

/// What documents link to is there, but for what is on the web.
fn links_lead_somewhere(dir: &Path) -> Result<()> {
    let pages = ["", "docs", "docs/decisions", "docs/format", "docs/measurements"];
    for page in pages.map(|pages| list(&dir.join(pages))) {
        for page in page?.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
            let text = std::fs::read_to_string(page)
                .map_err(|e| format!("read {}: {e}", page.display()))?;
            let from = page.strip_prefix(dir).unwrap_or(page).to_string_lossy();
            leads_somewhere(dir, &from, &text)?;
        }
    }
    Ok(())
}

fn leads_somewhere(dir: &Path, from: &str, text: &str) -> Result<()> {
    let files = links::targets(text).into_iter().map(|(_, target)| target);
    files.filter(|target| !target.contains("://") && !target.starts_with('#')).try_for_each(
        |target| {
            let file = target.split('#').next().unwrap_or(target);
            let path = links::join(from, file);
            let path = path.ok_or_else(|| format!("{from}: {target} leads out of the package"))?;
            must_be(&dir.join(path)).map_err(|why| format!("{from}: {target}: {why}"))
        },
    )
}

fn library_is_there(root: &Path, lib: &str) -> Result<()> {
    must_be(&root.join(lib).join(library()))?;
    must_be(&root.join("usr/include/foundationdb/fdb_c.h"))?;
    must_be(&root.join(lib).join("pkgconfig/plinth.pc"))?;
    must_be(&root.join(lib).join("cmake/Plinth/PlinthConfig.cmake"))
}

fn wheel(plan: &Plan) -> Result<Outcome> {
    let file = find(plan, |file| file.ends_with(".whl"))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if plan.is_release() && cfg!(target_os = "linux") && !name.contains("manylinux_2_28") {
        return Err(format!("{name} is not for manylinux_2_28"));
    }
    let dir = plan.fresh("try-wheel")?;
    let venv = dir.join("venv");
    if command::output("python3", &["-m", "venv", &venv.to_string_lossy()]).is_err() {
        return Ok(Skipped("python3 makes no virtual environment (python3-venv)"));
    }
    let (python, pip) = (venv.join("bin/python"), venv.join("bin/pip"));
    // Nothing that compiles is to be found.
    let mut install = Command::new(pip);
    let quiet = ["install", "--quiet", "--disable-pip-version-check"];
    install.args(quiet).arg(&file).env("CC", "/no/compiler").env("CARGO", "/no/cargo");
    command::text(&mut install)?;
    let program = "import plinth, fdb\nfdb.api_version(730)\ndb = fdb.open('./x')\ndb[b'a'] = b'1'\nprint(bytes(db[b'a']))\n";
    let told = command::text(Command::new(&python).args(["-c", program]).current_dir(&dir))?;
    if told.trim() != "b'1'" {
        return Err(format!("python says {told}"));
    }
    must_be(&dir.join("x/IDENTITY"))?;
    keeps_a_row(&Command::new(venv.join("bin/plinth")), &dir)?;
    Ok(Passed)
}

fn image(plan: &Plan) -> Result<Outcome> {
    if !crate::dist::image::can_be_made() {
        return Ok(Skipped("there is no apt-get, or no dpkg-deb"));
    }
    let (layout, root) = (plan.fresh("try-layout")?, plan.fresh("try-image")?);
    let archive = find(plan, |file| file.contains("-image-") && file.ends_with(".tar"))?;
    command::run("tar", &["-C", &layout.to_string_lossy(), "-xf", &archive.to_string_lossy()])?;
    for blob in std::fs::read_dir(layout.join("blobs/sha256"))
        .map_err(|e| format!("list blobs: {e}"))?
        .flatten()
    {
        if crate::dist::plan::sha256(&blob.path())? != blob.file_name().to_string_lossy() {
            return Err(format!("{} is not what it is called by", blob.path().display()));
        }
    }
    let index = std::fs::read_to_string(layout.join("index.json"))
        .map_err(|e| format!("read index.json: {e}"))?;
    let manifest = digests(&index).pop().ok_or("the index names no manifest")?;
    let blob = |digest: &str| layout.join("blobs/sha256").join(digest);
    let manifest =
        std::fs::read_to_string(blob(&manifest)).map_err(|e| format!("read the manifest: {e}"))?;
    // The first is the configuration's.
    for layer in digests(&manifest).iter().skip(1) {
        let (root, layer) = (root.to_string_lossy(), blob(layer));
        let unpack = ["-C", &root, "--keep-directory-symlink", "-xzf", &layer.to_string_lossy()];
        command::run("tar", &unpack)?;
    }
    let Some(mut inside) = as_root("chroot")? else { return Ok(Skipped(NO_ROOT)) };
    inside.arg(&root).arg("/usr/bin/plinth");
    // Below the root, where the program will find it by this name.
    copy(&layout.join("oci-layout"), &root.join("data/row/oci-layout"))?;
    keeps_a_row_in(&inside, Path::new("/data/row"))?;
    Ok(Passed)
}

const NO_ROOT: &str = "neither root nor namespaces of users are to be had";

/// A program as root, or as who takes himself for it; none where neither is to be had.
fn as_root(program: &str) -> Result<Option<Command>> {
    if command::output("id", &["-u"])?.trim() == "0" {
        return Ok(Some(Command::new(program)));
    }
    if command::output("unshare", &["--map-root-user", "true"]).is_err() {
        return Ok(None);
    }
    let mut inside = Command::new("unshare");
    inside.args(["--map-root-user", program]);
    Ok(Some(inside))
}

/// Every checksum in a text of JSON, in their order.
fn digests(json: &str) -> Vec<String> {
    json.split("\"sha256:")
        .skip(1)
        .filter_map(|rest| Some(rest.split('"').next()?.to_owned()))
        .collect()
}

/// What the chart makes, by which settings of it.
const RENDERINGS: [(&str, &[&str]); 3] = [
    (
        "withoutTls=true",
        &["StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "shop-plinth-2."],
    ),
    ("withoutTls=true,nodes=1", &["StatefulSet", "Service", "ConfigMap"]),
    (
        "tls.secret=shop-tls,nodes=5",
        &["secretName: shop-tls", "shop-plinth-4.shop-plinth.data.svc.cluster.local:4500:tls"],
    ),
];
/// What it refuses, by which words.
const REFUSALS: [(&str, &str); 2] =
    [("withoutTls=true,nodes=2", "1, 3, 5 or 7"), ("nodes=3", "withoutTls=true")];

fn chart(plan: &Plan) -> Result<Outcome> {
    let Some(helm) = tools::helm()? else {
        return Ok(Skipped("there is no helm, or no Go to build it with"));
    };
    let chart = find(plan, |file| file.starts_with("plinth-chart-"))?;
    let chart = chart.to_string_lossy();
    // Said, since a helm that is built from its sources takes itself for one of an old Kubernetes.
    let apart = ["template", "shop", &chart, "--namespace", "data", "--kube-version", "1.30.0"];
    let rendered =
        |settings: &str| command::output(&helm, &[&apart[..], &["--set", settings]].concat());
    for (settings, expected) in RENDERINGS {
        command::output(&helm, &["lint", "--strict", &chart, "--set", settings])?;
        let text = rendered(settings)?;
        if let Some(missing) = expected.iter().find(|word| !text.contains(*word)) {
            return Err(format!("helm template --set {settings} makes no {missing}:\n{text}"));
        }
    }
    for (settings, words) in REFUSALS {
        match rendered(settings) {
            Err(told) if told.contains(words) => {}
            other => {
                return Err(format!(
                    "helm template --set {settings} is to be refused, and gives {other:?}"
                ));
            }
        }
    }
    Ok(Passed)
}

/// What helm makes of the chart is what Kubernetes' schemas say, of its oldest version and of a new
/// one.
fn conforms(plan: &Plan) -> Result<Outcome> {
    let (Some(helm), Some((kubeconform, schemas))) = (tools::helm()?, tools::kubeconform()?) else {
        return Ok(Skipped(
            "there is no helm or no kubeconform, or no Go and Python to have them with",
        ));
    };
    let chart = find(plan, |file| file.starts_with("plinth-chart-"))?;
    let chart = chart.to_string_lossy();
    let apart = ["template", "shop", &chart, "--namespace", "data", "--kube-version"];
    let made = plan.fresh("try-chart")?;
    for version in tools::KUBERNETES {
        let files = schemas.join(version).join("{{.ResourceKind}}{{.KindSuffix}}.json");
        for (which, (settings, _)) in RENDERINGS.iter().enumerate() {
            let text =
                command::output(&helm, &[&apart[..], &[version, "--set", settings]].concat())?;
            let file = made.join(format!("{version}-{which}.yaml"));
            write(&file, text.as_bytes())?;
            let (file, files) = (file.to_string_lossy(), files.to_string_lossy());
            command::output(
                &kubeconform,
                &["-strict", "-summary", "-schema-location", &files, &file],
            )?;
        }
    }
    Ok(Passed)
}

fn formula(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("ruby") {
        return Ok(Skipped("there is no ruby"));
    }
    command::output("ruby", &["-c", &plan.out.join("plinth.rb").to_string_lossy()])?;
    Ok(Passed)
}

/// The README's example, as a program of its own that names the crate by its path in the sources.
/// Where packages are nobody's it isn't built, which takes minutes: it is looked at what it depends
/// on.
fn rust_program(plan: &Plan) -> Result<Outcome> {
    let dir = plan.fresh("try-rust")?;
    let name = format!("plinth-{}", version());
    let archive = plan.out.join(format!("{name}-source.tar.gz"));
    command::run("tar", &["-C", &dir.to_string_lossy(), "-xzf", &archive.to_string_lossy()])?;
    let (sources, program) = (dir.join(&name), dir.join("shop"));
    let readme = std::fs::read_to_string(sources.join("README.md"))
        .map_err(|e| format!("read the README: {e}"))?;
    let example = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    // It lies below this repository, of which it is no part.
    let manifest = format!(
        "[package]\nname = \"shop\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\nplinth = {{ path = \"../{name}/crates/plinth\" }}\n"
    );
    write(&program.join("Cargo.toml"), manifest.as_bytes())?;
    write(&program.join("src/main.rs"), example.ok_or("the README has no example")?.as_bytes())?;
    // The versions that we were tested with, and that may have been fetched already.
    copy(&sources.join("Cargo.lock"), &program.join("Cargo.lock"))?;
    let arguments: &[&str] = match plan.is_release() {
        true => &["run", "--quiet"],
        false => &["tree", "--offline", "--depth", "1"],
    };
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(&program).env("CARGO_TARGET_DIR", dir.join("target"));
    let told = command::text(&mut cargo)?;
    if !plan.is_release() && !told.contains(&format!("plinth v{}", version())) {
        return Err(format!("cargo tells of no plinth:\n{told}"));
    }
    Ok(Passed)
}

/// The program is of this version, makes a database in a directory, and finds a row there
/// afterwards; then it serves it.
fn keeps_a_row(program: &Command, dir: &Path) -> Result<()> {
    keeps_a_row_in(program, dir)
}

/// Series come out as files of Parquet and streams of Arrow, which a program that one builds
/// oneself may be without.
fn exports_tables(program: &Command, dir: &Path) -> Result<()> {
    let run = |arguments: &[&str]| command::text(again(program).arg("series").args(arguments));
    let in_dir = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (db, csv) = (in_dir("db"), in_dir("points.csv"));
    write(Path::new(&csv), b"cpu.user host=a,2026-01-01T00:00:00Z,0.5\n")?;
    run(&["import", "--dir", &db, "--create", &csv])?;
    for (format, magic) in [("parquet", &b"PAR1"[..]), ("arrow", &[0xff; 4])] {
        let table = in_dir(format);
        run(&["export", "--dir", &db, "--format", format, "--out", &table])?;
        let bytes = std::fs::read(&table).map_err(|e| format!("read {table}: {e}"))?;
        if !bytes.starts_with(magic) {
            return Err(format!("{table} is no table: it has {} bytes", bytes.len()));
        }
    }
    Ok(())
}

fn keeps_a_row_in(program: &Command, dir: &Path) -> Result<()> {
    let run = |arguments: &[&str]| {
        let mut command = again(program);
        command::text(command.args(arguments))
    };
    let told = run(&["version"])?;
    if !told.starts_with(&format!("plinth {}", version())) {
        return Err(format!("the program is {told}"));
    }
    let db = dir.join("db");
    let db = db.to_string_lossy();
    run(&["shell", "--dir", &db, "--create", "--exec", "writemode on; set fruit apple"])?;
    let told = run(&["check", &db])?;
    if !told.contains("it opens with every row") {
        return Err(format!("check says {told}"));
    }
    served(program, &db, &dir.join("fdb.cluster").to_string_lossy())
}

/// A server says that it is ready, and a client of it finds the row.
fn served(program: &Command, db: &str, file: &str) -> Result<()> {
    let mut server = again(program);
    server.args([
        "server",
        "--dir",
        db,
        "--cluster-file",
        file,
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]);
    let mut server = server
        .args(["--log", "off"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("start a server: {e}"))?;
    let mut line = String::new();
    let said = server.stdout.take().ok_or("its output was to be read")?;
    let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line);
    let told = match read {
        Ok(_) if line.starts_with("ready ") => {
            let mut client = again(program);
            command::text(client.args(["shell", "--cluster-file", file, "--exec", "get fruit"]))
        }
        other => Err(format!("the server said '{}' ({other:?})", line.trim())),
    };
    // Its end is asked for, and it ends well.
    let ended = command::run("kill", &["-TERM", &server.id().to_string()]);
    let status = server.wait().map_err(|e| format!("wait for a server: {e}"))?;
    ended?;
    if !status.success() {
        return Err(format!("the server ended with {status}"));
    }
    let told = told?;
    if told.contains("apple") { Ok(()) } else { Err(format!("the server's client says {told}")) }
}

/// A command to be given more arguments, as often as one likes.
fn again(program: &Command) -> Command {
    let mut command = Command::new(program.get_program());
    command.args(program.get_args());
    command
}

fn must_be(path: &Path) -> Result<()> {
    if path.exists() { Ok(()) } else { Err(format!("{} is missing", path.display())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_found_in_json() {
        assert_eq!(digests(r#"{"a":"sha256:1f"},{"b":["sha256:2e"]}"#), ["1f", "2e"]);
        assert!(digests("{}").is_empty());
    }
}
