//! The coordinator's threads: one listens, each connection has its own.

use super::registry::Registry;
use super::{Answer, LINE_MAX, Refusal, Request};
use crate::elastic::membership::MembershipError;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 1024;

/// A watcher hears at least so often, if only an empty line: so it is noticed that it is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Members that ask hear within this time that the job is done; who does not is gone or stands still.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// A coordinator that runs. Dropping it ends all connections.
#[derive(Debug)]
pub struct Coordinator {
    path: PathBuf,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    time_to_live: Duration,
    known: Mutex<Known>,
    changed: Condvar,
    connections: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    registry: Registry,
    closed: bool,
}

impl Coordinator {
    /// Listens on a socket at `path`, which must be free or left by a process that is gone.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn start(path: &Path, time_to_live: Duration) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        let (known, changed) = (Mutex::default(), Condvar::new());
        let shared = Shared { time_to_live, known, changed, connections: AtomicUsize::new(0) };
        let shared = Arc::new(shared);
        let listening = shared.clone();
        let listening = std::thread::Builder::new()
            .name("coordinator".into())
            .spawn(move || listen(&listener, &listening))?;
        Ok(Self { path: path.into(), shared, listening: Some(listening) })
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shared.let_members_hear();
        self.shared.known().closed = true;
        self.shared.changed.notify_all();
        // Wakes the listener up. Where that fails nobody can connect any more either.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(listening) = self.listening.take()
        {
            let _ = listening.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Shared {
    /// Where the job is done, waits until its members know and have left.
    fn let_members_hear(&self) {
        let end = Instant::now() + HEARD_WITHIN;
        let mut known = self.known();
        while known.registry.news.done.is_some() && !known.registry.members().is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let wait = self.changed.wait_timeout(known, left);
            known = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A thread that panicked had changed nothing by halves.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and tells watchers.
    fn change<R>(&self, change: impl FnOnce(&mut Registry) -> R) -> R {
        let result = change(&mut self.known().registry);
        self.changed.notify_all();
        result
    }
}

fn listen(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.known().closed {
            return;
        }
        let Ok(stream) = stream else { continue };
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let served = shared.clone();
        let thread = std::thread::Builder::new().name("member".into()).spawn(move || {
            // A connection that breaks is a client that is gone.
            let _ = serve(&stream, &served);
            served.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if thread.is_err() {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A line, or `None` where the connection ended in order.
fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = reader.take(LINE_MAX).read_line(&mut line)?;
    Ok((read > 0).then_some(line))
}

fn answer(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let text = serde_json::to_string(answer).expect("plain data") + "\n";
    stream.write_all(text.as_bytes())
}

fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(shared.time_to_live))?;
    stream.set_write_timeout(Some(shared.time_to_live))?;
    let mut reader = BufReader::new(stream);
    let Some(request) = line(&mut reader)? else { return Ok(()) };
    let request = match serde_json::from_str(&request) {
        Ok(request) => request,
        Err(e) => return answer(stream, &Answer::Refused(Refusal::Message(e.to_string()))),
    };
    let outcome = match request {
        Request::Join(node) => {
            let ticket = shared.change(|registry| registry.join(node));
            return lease(stream, &mut reader, shared, ticket);
        }
        Request::Lead(_) => {
            let ticket = shared.change(Registry::lead);
            return lease(stream, &mut reader, shared, ticket);
        }
        Request::Watch => return watch(stream, shared),
        Request::Members => Ok(Answer::Members(shared.known().registry.members())),
        Request::Leave(name) => shared.change(|r| r.leave(&name)).map(|()| Answer::Done),
        Request::Remove(name) => {
            shared.change(|registry| registry.remove(&name));
            Ok(Answer::Done)
        }
        Request::Tell(news) => {
            shared.known().registry.news = news;
            Ok(Answer::Done)
        }
        Request::News => Ok(Answer::News(shared.known().registry.news.clone())),
        Request::Generation => Ok(Answer::Generation(shared.known().registry.generation())),
        Request::Advance { from, leader } => {
            shared.change(|registry| registry.advance(from, leader)).map(Answer::Generation)
        }
    };
    answer(stream, &outcome.unwrap_or_else(|error| Answer::Refused(error.into())))
}

/// Serves a lease to its end, whatever that is.
fn lease(
    stream: &UnixStream,
    reader: &mut impl BufRead,
    shared: &Shared,
    ticket: Result<u64, MembershipError>,
) -> io::Result<()> {
    let ticket = match ticket {
        Ok(ticket) => ticket,
        Err(error) => return answer(stream, &Answer::Refused(error.into())),
    };
    let mut result = answer(stream, &Answer::Ticket(ticket));
    while result.is_ok() {
        result = match line(reader) {
            Ok(Some(_)) => {
                let held = shared.known().registry.holds(ticket);
                answer(stream, &Answer::Held(held))
            }
            Ok(None) => break,
            Err(e) => Err(e),
        };
        if shared.known().closed {
            break;
        }
    }
    shared.change(|registry| registry.release(ticket));
    result
}

fn watch(mut stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut told = None;
    loop {
        let mut known = shared.known();
        while !known.closed && told == Some(known.registry.version) {
            let wait = shared.changed.wait_timeout(known, SIGN_OF_LIFE);
            let (again, timeout) = wait.unwrap_or_else(PoisonError::into_inner);
            known = again;
            if timeout.timed_out() {
                break;
            }
        }
        if known.closed {
            return Ok(());
        }
        let news = (told != Some(known.registry.version)).then(|| known.registry.members());
        told = Some(known.registry.version);
        drop(known);
        match news {
            Some(members) => answer(stream, &Answer::Members(members))?,
            None => stream.write_all(b"\n")?,
        }
    }
}
