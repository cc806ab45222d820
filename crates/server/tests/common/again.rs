//! A suite a second time, over TLS: the test program runs itself, that suite alone.

#[test]
fn all_of_it_holds_over_tls() {
    const OVER_TLS: &str = "PLINTH_TEST_TLS";
    if std::env::var_os(OVER_TLS).is_some() {
        return;
    }
    // The program has other suites, too: the filter is the module that has this one.
    let (_, here) = module_path!().split_once("::").unwrap();
    let suite = here.strip_suffix("again").unwrap();
    let program = std::env::current_exe().unwrap();
    let output =
        std::process::Command::new(program).arg(suite).env(OVER_TLS, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("running 1 test"), "more than this test was to run: {text}");
    let others = text.lines().filter(|line| line.ends_with("... ok") && !line.contains(suite));
    assert_eq!(others.count(), 0, "tests of other suites were run: {text}");
}
