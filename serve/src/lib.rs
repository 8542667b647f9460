//! A small HTTP server for the loopback address: the explorer's files for `make serve`, `make demo` and
//! the browser tests, and what `runner explore` answers besides.
//!
//! One thread a connection and one request a connection: the explorer is some thirty files. What must
//! be right is refusal: heads that are cut off, drip or contradict themselves, paths that lead out of
//! the folder, bodies that are too long, more connections than threads. Of the small server crates
//! none bounds how long a client may take; those that do bring an asynchronous runtime with them.

mod files;
mod reply;
mod request;

pub use files::{content_type, folder};
pub use reply::Reply;
pub use request::Request;

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request has to be complete by then, and no write of an answer may take longer: otherwise idle
/// sockets pile up as threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections at a time; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 64;

/// After the answer, what the client still sends is read for so long: closing a socket with unread
/// bytes resets it, and a reset may overtake the answer.
const LINGER: Duration = Duration::from_secs(2);

/// What answers a request.
type Handler = dyn Fn(&mut Request) -> Reply + Send + Sync;

/// A bound, not yet answering server.
pub struct Server {
    listener: TcpListener,
    handler: Arc<Handler>,
    patience: Duration,
}

/// Binds `127.0.0.1:port` and no other address; port 0 asks the system for a free one.
///
/// # Errors
/// When the port is taken.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

impl Server {
    /// The files below `root` on a port of the loopback address.
    ///
    /// # Errors
    /// When the port is taken or the folder is not there.
    pub fn bind(root: &Path, port: u16) -> io::Result<Self> {
        let root = root.canonicalize()?;
        Ok(Self::new(listen(port)?, move |request| folder(&root, request)))
    }

    /// What `handler` answers to who connects to `listener`.
    pub fn new(
        listener: TcpListener,
        handler: impl Fn(&mut Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self { listener, handler: Arc::new(handler), patience: PATIENCE }
    }

    /// The address with a trailing slash.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!("http://{}/", self.listener.local_addr()?))
    }

    /// Answers until the process ends.
    pub fn run(self) {
        let places = Arc::new(Places::default());
        for stream in self.listener.incoming().flatten() {
            let place = Place::take(&places);
            let (handler, patience) = (Arc::clone(&self.handler), self.patience);
            std::thread::spawn(move || {
                let _place = place;
                // A failed connection concerns its client only: it sees the socket close.
                answer(&stream, &*handler, patience).ok();
            });
        }
    }

    /// Answers on a thread of its own and returns the address.
    ///
    /// # Errors
    /// When the system cannot say the address.
    pub fn spawn(self) -> io::Result<String> {
        let address = self.address()?;
        std::thread::spawn(move || self.run());
        Ok(address)
    }
}

/// How many connections there are.
#[derive(Default)]
struct Places {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// One of them; dropped with it.
struct Place(Arc<Places>);

impl Place {
    /// Waits until there is one.
    fn take(places: &Arc<Places>) -> Self {
        let taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |taken: &mut usize| *taken >= CONNECTIONS_MAX;
        let mut taken =
            places.freed.wait_while(taken, full).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        drop(taken);
        Self(Arc::clone(places))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

fn answer(stream: &TcpStream, handler: &Handler, patience: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    // Lines of a stream are short and wanted now.
    stream.set_nodelay(true)?;
    let (reply, head_only) = match Request::read(stream, Instant::now() + patience)? {
        Ok(mut request) => (handler(&mut request), request.method() == "HEAD"),
        Err(refusal) => (refusal, false),
    };
    reply.write(stream, head_only)?;
    stream.shutdown(Shutdown::Write)?;
    let mut rest = Timed { stream, until: Instant::now() + LINGER };
    io::copy(&mut rest, &mut io::sink()).map(drop)
}

/// Reads until a moment: a limit on each read alone would let a client drip for hours.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

#[cfg(test)]
mod tests;
