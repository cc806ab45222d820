//! A container image as a layout of files (OCI image format 1), made without a daemon: one layer of
//! Debian's C library and what it needs, one of ours.
//!
//! ```text
//!   index.json -> manifest -> config   which user, which settings, which order of layers
//!                          -> layer    Debian: the packages below, unpacked
//!                          -> layer    ours: program, licence, the user, the directory for data
//! ```
//! Every file but `index.json` and `oci-layout` is called by its checksum. There is no shell in it:
//! probes ask over HTTP.

use crate::dist::plan::{Plan, copy, remove, sha256, version, write};
use crate::dist::stage;
use crate::{Result, command};
use std::path::{Path, PathBuf};

/// Packages that the program runs on: the C library, what it unwinds with, and names of services
/// and protocols.
const DEBIAN: [&str; 3] = ["libc6", "libgcc-s1", "netbase"];
/// The user that the server runs as, by number, as chart and Dockerfile have it.
const USER: u32 = 4500;
/// What the server is told unless somebody says otherwise; the same as in packaging/Dockerfile.
const ENVIRONMENT: [&str; 5] = [
    "PATH=/usr/bin",
    "PLINTH_DIR=/data/db",
    "PLINTH_CLUSTER_FILE=/data/fdb.cluster",
    "PLINTH_HTTP=127.0.0.1:8080",
    "PLINTH_LOG=json",
];

/// The layout `plinth-0.1.0-image/`, and an archive of it that `podman load` and
/// `skopeo copy oci-archive:` take.
pub fn image(plan: &Plan) -> Result<()> {
    if !can_be_made() {
        println!(
            "no container image: it is made of Debian's packages, and there is no apt-get, or no dpkg-deb"
        );
        return Ok(());
    }
    let name = format!("plinth-{}-image-{}", version(), architecture());
    let layout = plan.out.join("parts").join(&name);
    remove(&layout).map_err(|e| format!("remove {}: {e}", layout.display()))?;
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).map_err(|e| format!("make {}: {e}", blobs.display()))?;
    let layers = [layer(plan, &debian(plan)?, &blobs)?, layer(plan, &ours(plan)?, &blobs)?];
    let config = blob(&blobs, config(&layers).as_bytes())?;
    let manifest = blob(&blobs, manifest(&config, &layers).as_bytes())?;
    write(&layout.join("oci-layout"), b"{\"imageLayoutVersion\":\"1.0.0\"}\n")?;
    write(&layout.join("index.json"), index(&manifest).as_bytes())?;
    // The layout's files stand at the top of the archive.
    let archive = plan.out.join(format!("{name}.tar"));
    plan.plain_tar(&archive, &layout, ".")
}

/// Whether this machine has Debian's packages.
pub fn can_be_made() -> bool {
    command::is_there("apt-get") && command::is_there("dpkg-deb")
}

/// What Go and so OCI call this machine's kind.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A root with Debian's packages in it.
fn debian(plan: &Plan) -> Result<PathBuf> {
    let (work, root) = (plan.fresh("debian-packages")?, plan.fresh("debian-root")?);
    let download = || {
        let mut apt = std::process::Command::new("apt-get");
        // As root it would fetch as a user who may not write here.
        apt.args(["-q", "-o", "APT::Sandbox::User=root", "download"])
            .args(DEBIAN)
            .current_dir(&work);
        command::text(&mut apt)
    };
    if download().is_err() {
        // Lists of packages may be missing on a fresh machine, or old.
        command::output("apt-get", &["-q", "update"])?;
        download()?;
    }
    // The directories that Debian has merged, as links, before a package makes them.
    for (name, to) in
        [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]
    {
        std::fs::create_dir_all(root.join(to)).map_err(|e| format!("make {to}: {e}"))?;
        command::run("ln", &["-s", to, &root.join(name).to_string_lossy()])?;
    }
    for file in
        std::fs::read_dir(&work).map_err(|e| format!("list {}: {e}", work.display()))?.flatten()
    {
        // Not dpkg-deb -x, which would put directories in the place of links.
        let unpack = r#"dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --no-same-owner -C "$2""#;
        let (file, root) = (file.path(), root.to_string_lossy().into_owned());
        command::run("sh", &["-c", unpack, "sh", &file.to_string_lossy(), &root])?;
    }
    // Conversions between character sets that nothing here asks for, and pages that nobody reads
    // there. Licences stay.
    for leftover in ["usr/share/lintian", "usr/share/man"] {
        remove(&root.join(leftover)).map_err(|e| format!("remove {leftover}: {e}"))?;
    }
    for kind in std::fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten() {
        remove(&kind.path().join("gconv")).map_err(|e| format!("remove gconv: {e}"))?;
    }
    Ok(root)
}

/// A root with what we add.
fn ours(plan: &Plan) -> Result<PathBuf> {
    let root = plan.fresh("image-root")?;
    copy(&plan.built().join("plinth"), &root.join("usr/bin/plinth"))?;
    stage::documents(&root.join("usr/share/doc/plinth"))?;
    let passwd = format!(
        "root:x:0:0:root:/root:/sbin/nologin\nplinth:x:{USER}:{USER}:plinth:/data:/sbin/nologin\n"
    );
    write(&root.join("etc/passwd"), passwd.as_bytes())?;
    write(&root.join("etc/group"), format!("root:x:0:\nplinth:x:{USER}:\n").as_bytes())?;
    write(
        &root.join("etc/nsswitch.conf"),
        b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\n",
    )?;
    for dir in ["tmp", "data"] {
        std::fs::create_dir_all(root.join(dir)).map_err(|e| format!("make {dir}: {e}"))?;
    }
    Ok(root)
}

/// A layer: its blob's name and length, and the checksum that it has uncompressed.
struct Layer {
    digest: String,
    bytes: u64,
    plain: String,
}

fn layer(plan: &Plan, root: &Path, blobs: &Path) -> Result<Layer> {
    let plain_file = plan.out.join("parts/layer.tar");
    plan.plain_tar(&plain_file, root, ".")?;
    own_data(plan, root, &plain_file)?;
    let plain = sha256(&plain_file)?;
    let compressed = plan.out.join("parts/layer.tar.gz");
    crate::dist::plan::gzip(&plain_file, &compressed)?;
    let digest = sha256(&compressed)?;
    let bytes = std::fs::metadata(&compressed).map_err(|e| format!("look at a layer: {e}"))?.len();
    let to = blobs.join(&digest);
    std::fs::rename(&compressed, &to).map_err(|e| format!("make {}: {e}", to.display()))?;
    Ok(Layer { digest, bytes, plain })
}

/// Gives the directory for data to the server's user: everything else is root's.
fn own_data(plan: &Plan, root: &Path, archive: &Path) -> Result<()> {
    if !root.join("data").is_dir() {
        return Ok(());
    }
    let (archive, root) = (archive.to_string_lossy(), root.to_string_lossy());
    let (owner, group) = (format!("--owner={USER}"), format!("--group={USER}"));
    let mtime = format!("--mtime=@{}", plan.epoch);
    let append = ["--numeric-owner", "--format=gnu", &mtime, "-C", &root, "-rf", &archive];
    command::run("tar", &[&append[..], &[&owner, &group, "--mode=0700", "./data"]].concat())?;
    command::run(
        "tar",
        &[&append[..], &["--owner=0", "--group=0", "--mode=1777", "./tmp"]].concat(),
    )
}

/// Writes a blob; gives its checksum and its length.
fn blob(blobs: &Path, content: &[u8]) -> Result<(String, usize)> {
    let beside = blobs.join("new");
    write(&beside, content)?;
    let digest = sha256(&beside)?;
    std::fs::rename(&beside, blobs.join(&digest)).map_err(|e| format!("make a blob: {e}"))?;
    Ok((digest, content.len()))
}

fn config(layers: &[Layer]) -> String {
    let environment: Vec<_> = ENVIRONMENT.iter().map(|text| format!("\"{text}\"")).collect();
    let plain: Vec<_> = layers.iter().map(|layer| format!("\"sha256:{}\"", layer.plain)).collect();
    format!(
        "{{\"architecture\":\"{}\",\"os\":\"linux\",\"config\":{{\"User\":\"{USER}:{USER}\",\"Env\":[{}],\
         \"ExposedPorts\":{{\"4500/tcp\":{{}}}},\"Volumes\":{{\"/data\":{{}}}},\"Entrypoint\":[\"/usr/bin/plinth\"],\
         \"Cmd\":[\"server\"],\"StopSignal\":\"SIGTERM\",\"Labels\":{{\"org.opencontainers.image.title\":\"plinth\",\
         \"org.opencontainers.image.version\":\"{}\",\"org.opencontainers.image.licenses\":\"Apache-2.0\"}}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[{}]}}}}\n",
        architecture(),
        environment.join(","),
        version(),
        plain.join(",")
    )
}

fn manifest((config, bytes): &(String, usize), layers: &[Layer]) -> String {
    let of = |layer: &Layer| {
        format!(
            "{{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"sha256:{}\",\"size\":{}}}",
            layer.digest, layer.bytes
        )
    };
    let layers: Vec<_> = layers.iter().map(of).collect();
    format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":\
         {{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:{config}\",\"size\":{bytes}}},\
         \"layers\":[{}]}}\n",
        layers.join(",")
    )
}

fn index((manifest, bytes): &(String, usize)) -> String {
    format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[{{\"mediaType\":\
         \"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:{manifest}\",\"size\":{bytes},\"platform\":\
         {{\"architecture\":\"{}\",\"os\":\"linux\"}},\"annotations\":{{\"org.opencontainers.image.ref.name\":\"{}\"}}}}]}}\n",
        architecture(),
        version()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_told_what_the_dockerfile_says() {
        let dockerfile = include_str!("../../../packaging/Dockerfile");
        for setting in ENVIRONMENT.iter().filter(|setting| !setting.starts_with("PATH")) {
            assert!(dockerfile.contains(setting), "{setting} is not in packaging/Dockerfile");
        }
        assert!(
            dockerfile.contains(&format!("--uid {USER} "))
                && dockerfile.contains("CMD [\"server\"]")
        );
    }

    #[test]
    fn layers_stand_in_their_order() {
        let of = |name: &str| Layer {
            digest: format!("{name}-packed"),
            bytes: 7,
            plain: format!("{name}-plain"),
        };
        let layers = [of("first"), of("second")];
        let config = config(&layers);
        assert!(
            config.contains("\"diff_ids\":[\"sha256:first-plain\",\"sha256:second-plain\"]"),
            "{config}"
        );
        let manifest = manifest(&("abc".to_owned(), 3), &layers);
        let (first, second) = (manifest.find("first-packed"), manifest.find("second-packed"));
        assert!(first.is_some() && first < second, "{manifest}");
    }
}
