//! Every example runs and ends well; each asserts what it shows.

#[path = "../examples/directory.rs"]
mod directory;
#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/queue.rs"]
mod queue;
#[path = "../examples/watch.rs"]
mod watch;

#[test]
fn hello_runs() {
    hello::main().unwrap();
}

#[test]
fn directory_runs() {
    directory::main().unwrap();
}

#[test]
fn queue_runs() {
    queue::main().unwrap();
}

#[test]
fn watch_runs() {
    watch::main().unwrap();
}
