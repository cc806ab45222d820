//! Requests to somebody else's server: documents for it, an Alertmanager for example, and documents
//! that it has, as targets that are scraped.
//!
//! A request has a connection of its own, over TLS where the address says so: the server's name is
//! compared, and whom the system trusts, or a file says, is trusted. Of the answer to a document
//! the status alone is of interest. Nothing is tried again here, and nothing is bounded in time:
//! whoever sends knows what it may take.

use crate::http::{Io, Whole};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, USER_AGENT};
use hyper::{Method, Request, Response};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Stream};
#[cfg(feature = "tls")]
use plinth_tls::Authorities;
use plinth_types::{Bytes, Error, Result};
use std::error::Error as _;
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;

/// What a server has answered.
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) kind: String,
    /// How the body is encoded; empty if it isn't.
    pub(crate) encoding: String,
    pub(crate) body: Vec<u8>,
}

/// Who says whether there is room for so many bytes more of an answer, or why there is none.
pub(crate) type Room<'a> = dyn FnMut(usize) -> std::result::Result<(), String> + Send + 'a;

/// A server that takes or has documents.
pub(crate) struct Recipient {
    url: String,
    host: String,
    port: u16,
    path: String,
    #[cfg(feature = "tls")]
    authorities: Option<Authorities>,
}

/// What an address says.
#[derive(PartialEq, Eq, Debug)]
struct Parts<'a> {
    is_secure: bool,
    host: &'a str,
    port: Option<u16>,
    path: &'a str,
}

impl<'a> Parts<'a> {
    /// Those of `http://HOST:PORT/PATH`.
    fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let is_secure = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let (place, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().ok().filter(|port| *port > 0)?))
            }
            _ => (place, None),
        };
        let is_plain = |text: &str| {
            text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#'))
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let path = path.trim_end_matches('/');
        (!bare.is_empty() && is_plain(host) && is_plain(path)).then_some(Self {
            is_secure,
            host,
            port,
            path,
        })
    }
}

impl Recipient {
    /// The server at `http://HOST[:PORT][/PATH]` or `https://..`. Trusted is whom the file of
    /// certificates (PEM) says, or else whom the system trusts.
    ///
    /// # Errors
    /// If it is no such address; `tls_error` if nobody is trusted.
    pub(crate) async fn open(env: &Env, url: &str, trusted: Option<&Path>) -> Result<Self> {
        let wrong = |why: &str| {
            Error::client_invalid_operation().with_detail(format!("{url} is no address: {why}"))
        };
        let parts = Parts::of(url).ok_or_else(|| wrong("http[s]://HOST[:PORT][/PATH] expected"))?;
        #[cfg(not(feature = "tls"))]
        if parts.is_secure {
            let _ = (env, trusted);
            return Err(wrong("this Plinth was built without TLS"));
        }
        #[cfg(feature = "tls")]
        let authorities = match (parts.is_secure, trusted) {
            (false, _) => None,
            (true, None) => Some(Authorities::load(env).await?),
            (true, Some(file)) => Some(Authorities::of_file(env, file).await?),
        };
        let usual_port = if parts.is_secure { 443 } else { 80 };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            host: parts.host.to_owned(),
            port: parts.port.unwrap_or(usual_port),
            path: parts.path.to_owned(),
            #[cfg(feature = "tls")]
            authorities,
        })
    }

    /// Where it is, as it was given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a document of JSON below its path; gives the status of the answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn post(
        &self,
        env: &Env,
        path: &str,
        body: String,
    ) -> std::result::Result<u16, String> {
        let request = self.request(Method::POST, path).header(CONTENT_TYPE, "application/json");
        let request = request.body(Whole(Bytes::from(body))).map_err(|why| why.to_string())?;
        self.ask(env, request, None).await.map(|got| got.status)
    }

    /// What it has below its path. `room` is asked whether there is room for so many bytes more.
    ///
    /// # Errors
    /// Why there is no answer, or that there is no room for it.
    pub(crate) async fn get(
        &self,
        env: &Env,
        path: &str,
        headers: Vec<(HeaderName, String)>,
        room: &mut Room<'_>,
    ) -> std::result::Result<Got, String> {
        let request = self.request(Method::GET, path);
        let request = headers
            .into_iter()
            .fold(request, |request, (name, text)| request.header(name, text))
            .body(Whole(Bytes::new()))
            .map_err(|why| why.to_string())?;
        self.ask(env, request, Some(room)).await
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.path))
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(USER_AGENT, concat!("plinth/", env!("CARGO_PKG_VERSION")))
    }

    /// Sends a request, and reads the answer; its body only where somebody says what there is room
    /// for.
    async fn ask(
        &self,
        env: &Env,
        request: Request<Whole>,
        room: Option<&mut Room<'_>>,
    ) -> std::result::Result<Got, String> {
        let stream = self.connect(env).await.map_err(|why| why.to_string())?;
        let (mut sender, connection) =
            http1::handshake::<_, Whole>(Io(stream)).await.map_err(|why| with_cause(&why))?;
        let mut connection = Box::pin(connection);
        let mut answered = pin!(async {
            let answer = sender.send_request(request).await.map_err(|why| with_cause(&why))?;
            got(answer, room).await
        });
        match race(answered.as_mut(), connection.as_mut()).await {
            First::Left(answer) => answer,
            First::Right(ended) => {
                drop(connection);
                // The answer may have come with the end.
                let why = ended.err().map(|why| with_cause(&why));
                answered.await.map_err(|other| why.unwrap_or(other))
            }
        }
    }

    /// A connection to whichever of its addresses answers first.
    async fn connect(&self, env: &Env) -> Result<Stream> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream = env.connect_to_any(&env.sockets().resolve(host, self.port).await?).await?;
        #[cfg(feature = "tls")]
        if let Some(authorities) = &self.authorities {
            return authorities.connect(host, stream);
        }
        Ok(stream)
    }
}

/// Reads an answer.
async fn got(
    answer: Response<Incoming>,
    room: Option<&mut Room<'_>>,
) -> std::result::Result<Got, String> {
    let header = |name: HeaderName| match answer.headers().get(name) {
        Some(value) => String::from_utf8_lossy(value.as_bytes()).trim().to_owned(),
        None => String::new(),
    };
    let (kind, encoding) = (header(CONTENT_TYPE), header(CONTENT_ENCODING));
    let mut got = Got { status: answer.status().as_u16(), kind, encoding, body: Vec::new() };
    let Some(room) = room else { return Ok(got) };
    let mut body = pin!(answer.into_body());
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame.map_err(|why| with_cause(&why))?.into_data() else { continue };
        room(data.len())?;
        got.body.extend_from_slice(&data);
    }
    Ok(got)
}

/// An error, and what led to it.
fn with_cause(error: &hyper::Error) -> String {
    error.source().map_or(error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_http() {
        let parts =
            |url| Parts::of(url).map(|parts| (parts.is_secure, parts.host, parts.port, parts.path));
        assert_eq!(parts("http://localhost:4318"), Some((false, "localhost", Some(4318), "")));
        assert_eq!(parts("https://otel/"), Some((true, "otel", None, "")));
        assert_eq!(parts("http://[::1]:9/a/b/"), Some((false, "[::1]", Some(9), "/a/b")));
        assert_eq!(parts("http://[::1]"), Some((false, "[::1]", None, "")));
        for wrong in [
            "",
            "localhost:4318",
            "ftp://localhost",
            "http://",
            "http://:1",
            "http://[]",
            "http://a:0",
            "http://a:x",
            "http://a b",
            "http://me@a",
            "http://a/b?c",
            "http://a/b#c",
        ] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    /// What a document comes to that is sent to a server with this certificate, whom others trust
    /// than those of the file.
    #[cfg(feature = "tls")]
    fn posted(host: &str, certificate: &str, trusted: &str) -> std::result::Result<u16, String> {
        use plinth_tls::{Acceptor, Purpose, Source, Terms, TlsOptions};
        use std::future::poll_fn;
        let place = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/certificates"));
        let file = |name: &str| Some(Source::File(place.join(name)));
        let env = Env::real();
        plinth_env::block_on(async {
            let listener = env.sockets().listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let url = format!("https://{host}:{}/a", listener.local_address().port());
            let trusted = place.join(trusted);
            let recipient = Recipient::open(&env, &url, Some(&trusted)).await.unwrap();
            let (certificate, key) = (file(certificate), file("server.key"));
            let options = TlsOptions { certificate, key, ..TlsOptions::default() };
            let acceptor = Acceptor::load(&env, options).await.unwrap();
            let answering = async {
                let terms = Terms {
                    purpose: Purpose::Web,
                    plain_answer: b"".as_slice().into(),
                    on_failure: std::sync::Arc::new(|_| {}),
                };
                let mut stream = acceptor.accept(listener.accept().await?, &terms)?;
                let (mut text, mut buffer) = (String::new(), [0; 4096]);
                while !text.ends_with("{}") {
                    match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
                        Ok(len @ 1..) => text += std::str::from_utf8(&buffer[..len]).unwrap(),
                        _ => return std::future::pending::<Result<()>>().await,
                    }
                }
                assert!(text.starts_with("POST /a/b HTTP/1.1\r\n"), "{text}");
                let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                poll_fn(|context| stream.poll_send(context, answer)).await.unwrap();
                poll_fn(|context| stream.poll_flush(context)).await.unwrap();
                std::future::pending().await
            };
            match race(recipient.post(&env, "/b", "{}".into()), answering).await {
                First::Left(posted) => posted,
                First::Right(ended) => panic!("{ended:?}"),
            }
        })
    }

    #[cfg(feature = "tls")]
    #[test]
    fn who_answers_behind_tls_has_to_be_who_it_says() {
        assert_eq!(posted("localhost", "server.crt", "ca.crt"), Ok(204));
        assert_eq!(posted("127.0.0.1", "server.crt", "ca.crt"), Ok(204));
        for (certificate, trusted) in [
            ("server.crt", "other-ca.crt"),
            ("stranger-server.crt", "ca.crt"),
            ("expired-server.crt", "ca.crt"),
        ] {
            let why = posted("localhost", certificate, trusted).unwrap_err();
            assert!(why.contains("certificate"), "{why}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn whom_to_trust_is_looked_at_when_it_is_opened() {
        let env = Env::real();
        let open = |trusted: &str| {
            let opened = Recipient::open(&env, "https://a", Some(Path::new(trusted)));
            plinth_env::block_on(opened).err().expect("nobody is trusted")
        };
        assert_eq!(open("/nowhere.crt"), Error::tls_error());
        let key = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/certificates/server.key");
        assert!(open(key).detail().unwrap().contains("has no certificate"));
    }
}
