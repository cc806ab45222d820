//! The whole suite a second time, over TLS: the test program runs itself.

#[test]
fn all_of_it_holds_over_tls() {
    const OVER_TLS: &str = "PLINTH_TEST_TLS";
    if std::env::var_os(OVER_TLS).is_some() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).env(OVER_TLS, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("running 1 test"), "more than this test was to run: {text}");
}
