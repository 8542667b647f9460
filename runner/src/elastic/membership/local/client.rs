//! The other end of the coordinator's socket.

use super::{Answer, LINE_MAX, Refusal, Request};
use crate::elastic::membership::{
    Held, Lease, Membership, MembershipError, News, Node, Notice, check_name,
};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two attempts to reach a coordinator again.
const AGAIN: Duration = Duration::from_millis(200);

/// A coordinator somewhere on this machine.
#[derive(Debug)]
pub struct LocalMembership {
    path: PathBuf,
    time_to_live: Duration,
    /// The ticket of the lease to lead, if this process ever did.
    leader: Arc<AtomicU64>,
}

impl LocalMembership {
    /// The coordinator whose socket is at `path`, with leases of that time to live.
    pub fn new(path: &Path, time_to_live: Duration) -> Self {
        Self { path: path.into(), time_to_live, leader: Arc::default() }
    }

    fn unreachable(&self, error: &io::Error) -> MembershipError {
        let why = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                "no job runs there".into()
            }
            _ => error.to_string(),
        };
        MembershipError::Unreachable { address: self.path.display().to_string(), why }
    }

    fn try_ask(&self, request: &Request) -> io::Result<(Connection, Answer)> {
        let stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(self.time_to_live))?;
        stream.set_write_timeout(Some(self.time_to_live))?;
        let mut connection = Connection { reader: BufReader::new(stream) };
        let text = serde_json::to_string(request).expect("plain data");
        let answer = connection.say(&text)?;
        Ok((connection, answer))
    }

    fn ask(&self, request: &Request) -> Result<(Connection, Answer), MembershipError> {
        match self.try_ask(request).map_err(|e| self.unreachable(&e))? {
            (_, Answer::Refused(refusal)) => Err(refusal.at(&self.path.display().to_string())),
            answered => Ok(answered),
        }
    }

    fn unexpected(&self, answer: &Answer) -> MembershipError {
        Refusal::Message(format!("unexpected answer {answer:?}"))
            .at(&self.path.display().to_string())
    }

    fn lease(&self, request: &Request) -> Result<(u64, Box<dyn Lease>), MembershipError> {
        let (connection, answer) = self.ask(request)?;
        let Answer::Ticket(ticket) = answer else { return Err(self.unexpected(&answer)) };
        let lease = LocalLease::start(connection, self.time_to_live / 4);
        Ok((ticket, Box::new(lease.map_err(|e| self.unreachable(&e))?)))
    }
}

/// A connection after its first answer.
struct Connection {
    reader: BufReader<UnixStream>,
}

impl Connection {
    fn say(&mut self, text: &str) -> io::Result<Answer> {
        self.reader.get_mut().write_all(format!("{text}\n").as_bytes())?;
        self.hear()
    }

    /// Ends a lease; returns when the coordinator has, or when it cannot be reached.
    fn give_up(&mut self) {
        let _ = self.reader.get_ref().shutdown(Shutdown::Write);
        // It closes the connection when nothing of the lease is left.
        while self.hear().is_ok() {}
    }

    /// The next answer; signs of life are passed over.
    fn hear(&mut self) -> io::Result<Answer> {
        loop {
            let mut line = String::new();
            if self.reader.by_ref().take(LINE_MAX << 8).read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !line.trim().is_empty() {
                return Ok(serde_json::from_str(&line)?);
            }
        }
    }
}

impl Membership for LocalMembership {
    fn join(&self, node: &Node) -> Result<Box<dyn Lease>, MembershipError> {
        check_name(&node.name)?;
        Ok(self.lease(&Request::Join(node.clone()))?.1)
    }

    fn leave(&self, name: &str) -> Result<(), MembershipError> {
        self.ask(&Request::Leave(name.into())).map(drop)
    }

    fn remove(&self, name: &str) -> Result<(), MembershipError> {
        self.ask(&Request::Remove(name.into())).map(drop)
    }

    fn members(&self) -> Result<Vec<Node>, MembershipError> {
        match self.ask(&Request::Members)?.1 {
            Answer::Members(members) => Ok(members),
            other => Err(self.unexpected(&other)),
        }
    }

    fn tell(&self, news: &News) -> Result<(), MembershipError> {
        self.ask(&Request::Tell(news.clone())).map(drop)
    }

    fn news(&self) -> Result<News, MembershipError> {
        match self.ask(&Request::News)?.1 {
            Answer::News(news) => Ok(news),
            other => Err(self.unexpected(&other)),
        }
    }

    fn watch(&self) -> Receiver<Notice> {
        let (sender, receiver) = channel();
        let again = Self { path: self.path.clone(), leader: Arc::default(), ..*self };
        std::thread::spawn(move || again.watch_for_ever(&sender));
        receiver
    }

    fn lead(&self, who: &str) -> Result<Box<dyn Lease>, MembershipError> {
        let (ticket, lease) = self.lease(&Request::Lead(who.into()))?;
        self.leader.store(ticket, Ordering::Relaxed);
        Ok(lease)
    }

    fn generation(&self) -> Result<u64, MembershipError> {
        match self.ask(&Request::Generation)?.1 {
            Answer::Generation(generation) => Ok(generation),
            other => Err(self.unexpected(&other)),
        }
    }

    fn advance(&self, from: u64) -> Result<u64, MembershipError> {
        let leader = Some(self.leader.load(Ordering::Relaxed));
        match self.ask(&Request::Advance { from, leader })?.1 {
            Answer::Generation(generation) => Ok(generation),
            other => Err(self.unexpected(&other)),
        }
    }
}

impl LocalMembership {
    fn watch_for_ever(&self, notices: &Sender<Notice>) {
        let mut connected = true;
        loop {
            let mut heard = self.try_ask(&Request::Watch);
            while let Ok((connection, answer)) = heard {
                connected = true;
                if let Answer::Members(members) = answer
                    && notices.send(Notice::Members(members)).is_err()
                {
                    return;
                }
                let mut connection = connection;
                heard = connection.hear().map(|answer| (connection, answer));
            }
            if let (Err(error), true) = (heard, connected)
                && notices.send(Notice::Disconnected(error.to_string())).is_err()
            {
                return;
            }
            connected = false;
            std::thread::sleep(AGAIN);
        }
    }
}

/// A lease that a thread renews.
struct LocalLease {
    held: Arc<AtomicU8>,
    end: Option<Sender<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LocalLease {
    fn start(mut connection: Connection, every: Duration) -> io::Result<Self> {
        let held = Arc::new(AtomicU8::new(Held::Yes as u8));
        let (end, ended) = channel();
        let state = held.clone();
        let renew = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
                let now = match connection.say("\"renew\"") {
                    Ok(Answer::Held(true)) => continue,
                    Ok(Answer::Held(false)) => Held::Removed,
                    _ => Held::Expired,
                };
                state.store(now as u8, Ordering::Relaxed);
                return;
            }
            connection.give_up();
        };
        let thread = std::thread::Builder::new().name("lease".into()).spawn(renew)?;
        Ok(Self { held, end: Some(end), thread: Mutex::new(Some(thread)) })
    }
}

impl Lease for LocalLease {
    fn held(&self) -> Held {
        match self.held.load(Ordering::Relaxed) {
            0 => Held::Yes,
            1 => Held::Expired,
            _ => Held::Removed,
        }
    }
}

impl Drop for LocalLease {
    /// Returns when the coordinator knows.
    fn drop(&mut self) {
        drop(self.end.take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
