//! A directory is a target as every other one, on a real disk and on a simulated one.

#[test]
fn a_directory_does_what_targets_do() {
    use plinth_backup::{Directory, target::conformance};
    use plinth_env::{Env, block_on};

    let env = Env::real();
    let place = block_on(env.files().temporary_dir("plinth-backup-target")).unwrap();
    block_on(conformance::all(&Directory::new(&env, place.path().join("a/b"))));

    let simulation = plinth_env::simulated::Simulation::new(1);
    let machine = simulation.process("target");
    simulation.run_until(conformance::all(&Directory::new(&machine, "/backups/a")));
}

/// An object store does it too, with a prefix and without; and what it holds can be a backup.
#[cfg(feature = "object-store")]
#[test]
fn an_object_store_does_what_targets_do() {
    use plinth_backup::target::{Store, conformance};
    use plinth_env::block_on;

    block_on(conformance::all(&Store::in_memory("")));
    block_on(conformance::all(&Store::in_memory("a/b")));
    // Listings were empty where the store writes a prefix in another way.
    for prefix in ["a//b", "a~b", "a%20b", "a b/[c]", "\u{e4}/b"] {
        block_on(conformance::all(&Store::in_memory(prefix)));
    }
}

/// What a URL can be, and what is said of one that is none; secrets are in nothing that is said.
#[cfg(feature = "object-store")]
#[test]
fn urls_name_stores() {
    use plinth_backup::target::{named, redacted};
    use plinth_env::{Env, block_on};

    let env = Env::real();
    for (url, shown) in [
        ("s3://shop/backups/db?region=eu-west-1", "s3://shop/backups/db?region=eu-west-1"),
        ("s3://shop?endpoint=http://127.0.0.1:9000", "s3://shop?endpoint=http://127.0.0.1:9000"),
        ("gs://shop/db", "gs://shop/db"),
        (
            "blobstore://key:se/cr:et@host:9000/name?bucket=b&sc=0&rps=100&region=r",
            "blobstore://key@host:9000/name?bucket=b&sc=0&rps=100&region=r",
        ),
        // Secrets may have anything in them.
        ("blobstore://key:a@hidden@host/n?bucket=b", "blobstore://key@host/n?bucket=b"),
        ("blobstore://key:a?hidden@host/n?bucket=b", "blobstore://key@host/n?bucket=b"),
        ("/backups/db", "file:///backups/db"),
        // What is shown can be given again.
        ("backups/db", "backups/db"),
        ("./backups/db", "./backups/db"),
    ] {
        let target =
            block_on(named(&env, url, &[])).map_err(|error| format!("{url}: {error}")).unwrap();
        assert_eq!(target.url(), shown);
    }
    for (url, shown) in [
        ("blobstore://k:s@h/n", "blobstore://k@h/n"),
        ("blobstore://k:s@t@h/n", "blobstore://k@h/n"),
        ("s3://k:s@b/n", "s3://k@b/n"),
        ("file:///a:b@c", "file:///a:b@c"),
        ("/a:b@c", "/a:b@c"),
    ] {
        assert_eq!(redacted(url), shown);
    }
    for (url, words) in [
        ("", "empty"),
        ("s3://", "a bucket"),
        ("s3://shop/../x", "no place"),
        ("s3://shop?secret=1", "no parameter secret"),
        ("s3://shop?region", "no parameter"),
        ("ftp://x", "not supported"),
        ("s3://key:hidden@shop/x", "credentials"),
        ("s3://shop/x?endpoint=http://key:hidden@host", "credentials"),
        ("az://key:hidden/shop", "credentials"),
        ("blobstore://key:hidden/n?bucket=b", "no host"),
        ("blobstore://key:a@host/n?bucket=b&hidden", "name=value"),
        ("blobstore://key:a@host/n?bucket=b&hidden=1", "a parameter that"),
        ("blobstore://key:a@host/n?bucket=b&cto=hidden", "a number"),
        ("blobstore://key:a@host/../hidden?bucket=b", "no place"),
        ("blobstore://key:hidden@host/name", "bucket=NAME"),
        ("blobstore://key:hidden@host?bucket=b", "the name of a backup"),
        ("blobstore://key:hidden@host/n?bucket=b&cto=soon", "a number"),
        ("blobstore://nobody@host/n?bucket=b", "no file of credentials has an account nobody@host"),
    ] {
        let error = block_on(named(&env, url, &[])).map(drop).unwrap_err();
        assert_eq!(error.code(), 2314, "{url}");
        assert!(
            error.to_string().contains(words) && !error.to_string().contains("hidden"),
            "{error}"
        );
    }
}
