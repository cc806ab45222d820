/// The endpoint as the tests reach it: by sockets, through a server that lives as long as the test program.
pub fn provided(endpoint: Arc<dyn Endpoint>) -> Arc<dyn Endpoint> {
    let env = endpoint.env().clone();
    let listen = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 0))];
    let config = plinth_server::ServerConfig { listen, ..Default::default() };
    let server = plinth_env::block_on(plinth_server::Server::start(endpoint, config)).unwrap();
    let file = plinth_client::remote::ClusterFile::parse(server.connection_string()).unwrap();
    std::mem::forget(server);
    Arc::new(plinth_client::remote::RemoteEndpoint::connect(&env, file))
}

/// Whether what is answered at once is there when the call returns.
pub const IN_PROCESS: bool = false;
