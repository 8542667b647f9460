//! Access to runs: for the page that this program served, opened by the user who started it.
//!
//! Any page in the same browser can send requests to this address, and any program of any user of
//! this machine. The header `Host` keeps out pages whose name was pointed here (DNS rebinding),
//! `Origin` keeps out all other pages, and a token that only the printed address has keeps out
//! programs and other users. The token is exchanged once, for a session that the page's tab keeps.

use pipewright_serve::{Reply, Request};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Tabs that may be open at a time; a further one takes the place of the oldest.
const SESSIONS_MAX: usize = 16;

/// The header of the session. A header of its own, unlike a cookie, is sent by nobody else's page
/// and to nobody else's port.
pub const SESSION: &str = "x-pipewright-session";

/// 128 random bits as 32 digits.
#[derive(Clone)]
struct Secret(String);

impl Secret {
    fn new() -> io::Result<Self> {
        let mut bytes = [0_u8; 16];
        // Requests up to 256 bytes come whole once the system has randomness, and it waits for that.
        if getrandom(&mut bytes, GetRandomFlags::empty())? != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut text = String::new();
        bytes.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a String"));
        Ok(Self(text))
    }

    /// Whether it is `text`, in a time that does not say how much of it is right.
    fn is(&self, text: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), text.as_bytes());
        let differs = own.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
        own.len() == other.len() && std::hint::black_box(differs) == 0
    }
}

struct Keys {
    /// What the next page exchanges.
    token: Secret,
    sessions: Vec<Secret>,
}

/// The rules, and the secrets that open.
pub struct Access {
    host: String,
    origin: String,
    keys: Mutex<Keys>,
}

impl Access {
    /// For the page on `127.0.0.1:port`.
    pub fn new(port: u16) -> io::Result<Self> {
        // Browsers leave out the port that is usual.
        let host = match port {
            80 => "127.0.0.1".to_owned(),
            port => format!("127.0.0.1:{port}"),
        };
        let keys = Mutex::new(Keys { token: Secret::new()?, sessions: vec![] });
        Ok(Self { origin: format!("http://{host}"), host, keys })
    }

    /// The address to open, with the token where browsers send it to nobody: behind the `#`.
    pub fn address(&self) -> String {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{}/#here={}", self.origin, keys.token.0)
    }

    /// Refuses what was not sent to this address by its name.
    pub fn host(&self, request: &Request) -> Result<(), Reply> {
        match request.header("host") == Some(self.host.as_str()) {
            true => Ok(()),
            false => Err(Reply::text(421, "this is the explorer's address, by its number only")),
        }
    }

    /// Refuses what another page sends.
    pub fn origin(&self, request: &Request) -> Result<(), Reply> {
        let same_site = request.header("sec-fetch-site").is_none_or(|site| site == "same-origin");
        match request.header("origin") == Some(self.origin.as_str()) && same_site {
            true => Ok(()),
            false => Err(Reply::text(403, "only the explorer's own page may ask for this")),
        }
    }

    /// Refuses who has no session.
    pub fn session(&self, request: &Request) -> Result<(), Reply> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let given = request.header(SESSION).unwrap_or_default();
        match keys.sessions.iter().fold(false, |found, session| found | session.is(given)) {
            true => Ok(()),
            false => Err(Reply::text(401, "open the address that runner explore printed")),
        }
    }

    /// A session for the token, which is worth nothing afterwards: another one takes its place. `None`
    /// where it is not the token.
    pub fn exchange(&self, token: &str) -> io::Result<Option<String>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.token.is(token) {
            return Ok(None);
        }
        let session = Secret::new()?;
        keys.token = Secret::new()?;
        if keys.sessions.len() == SESSIONS_MAX {
            keys.sessions.remove(0);
        }
        keys.sessions.push(session.clone());
        Ok(Some(session.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(access: &Access) -> String {
        access.address().split_once("#here=").unwrap().1.to_owned()
    }

    #[test]
    fn a_token_opens_once() {
        let access = Access::new(8080).unwrap();
        let first = token(&access);
        assert_eq!((first.len(), access.host.as_str()), (32, "127.0.0.1:8080"));
        for wrong in ["", "0", &first[..31], &format!("{first}0"), &"0".repeat(32)] {
            assert_eq!(access.exchange(wrong).unwrap(), None, "{wrong}");
        }
        let session = access.exchange(&first).unwrap().expect("a session");
        assert_ne!(session, first);
        assert_eq!(access.exchange(&first).unwrap(), None, "used");
        assert_ne!(token(&access), first, "the next window has its own");
    }

    #[test]
    fn old_sessions_make_room() {
        let access = Access::new(80).unwrap();
        assert_eq!(access.origin, "http://127.0.0.1");
        let open = || access.exchange(&token(&access)).unwrap().unwrap();
        let first = open();
        (0..SESSIONS_MAX).for_each(|_| drop(open()));
        let keys = access.keys.lock().unwrap();
        assert_eq!(keys.sessions.len(), SESSIONS_MAX);
        assert!(!keys.sessions.iter().any(|session| session.is(&first)));
    }
}
