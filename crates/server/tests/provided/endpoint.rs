/// The endpoint as the tests reach it: by sockets, through a server that lives as long as what is
/// given. Over TLS if the variable says so with which the program runs itself a second time.
pub fn provided(endpoint: Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
    let env = endpoint.env().clone();
    let listen = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 0))];
    #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS has more to say"))]
    let mut config = plinth_server::ServerConfig { listen, ..Default::default() };
    #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS has more to say"))]
    let mut options = plinth_client::remote::RemoteOptions::new(&env);
    #[cfg(feature = "tls")]
    if std::env::var_os("PLINTH_TEST_TLS").is_some() {
        config.tls = Some(certificates("server"));
        options.tls = certificates("client");
    }
    let server = plinth_env::block_on(plinth_server::Server::start(endpoint, config)).unwrap();
    let file = plinth_client::remote::ClusterFile::parse(server.connection_string()).unwrap();
    let remote = Arc::new(plinth_client::remote::RemoteEndpoint::with_options(&env, file, &options));
    let (wanted, clock) = (Arc::downgrade(&remote), env.clone());
    drop(env.spawn_network("server", async move {
        while wanted.strong_count() > 0 {
            clock.sleep(std::time::Duration::from_millis(20)).await;
        }
        drop(server);
    }));
    remote
}

/// What one of the test's certificates, its key and the authority are.
#[cfg(feature = "tls")]
fn certificates(name: &str) -> plinth_server::TlsOptions {
    let file = |name: String| {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/certificates");
        Some(plinth_server::Source::File(format!("{place}/{name}").into()))
    };
    plinth_server::TlsOptions {
        certificate: file(format!("{name}.crt")),
        key: file(format!("{name}.key")),
        authorities: file("ca.crt".into()),
        ..Default::default()
    }
}

/// Whether what is answered at once is there when the call returns.
pub const IN_PROCESS: bool = false;
