//! Changes of the members, with connections that come and go.

use super::{Node, Notice, node};
use etcd_client::{Client, Error, GetOptions, WatchOptions, WatchStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// Without news for so long, etcd is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(1);

/// Time between two attempts to reach it again.
const AGAIN: Duration = Duration::from_millis(200);

/// Watches the keys below `prefix`.
pub(super) fn watch(runtime: &Handle, client: Client, prefix: String) -> Receiver<Notice> {
    let (sender, receiver) = channel();
    runtime.spawn(async move {
        let mut watcher = Watcher { client, prefix, told: None, lost: false, notices: sender };
        while watcher.connection().await {
            sleep(AGAIN).await;
        }
    });
    receiver
}

struct Watcher {
    client: Client,
    prefix: String,
    /// What was told last; nothing while there is no connection.
    told: Option<Vec<Node>>,
    /// Whether it was said that there is none.
    lost: bool,
    notices: Sender<Notice>,
}

/// Why a connection is not watched any more.
enum End {
    /// Nobody listens.
    Unwanted,
    /// It was lost.
    Lost(String),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Lost(error.to_string())
    }
}

impl Watcher {
    /// Watches until the connection is lost; whether somebody still listens.
    async fn connection(&mut self) -> bool {
        let Err(End::Lost(why)) = self.follow().await else { return false };
        self.told = None;
        // Said once, not at each attempt.
        let again = std::mem::replace(&mut self.lost, true);
        again || self.notices.send(Notice::Disconnected(why)).is_ok()
    }

    async fn follow(&mut self) -> Result<(), End> {
        let options = Some(WatchOptions::new().with_prefix());
        let opening = self.client.watch(self.prefix.as_str(), options);
        let mut stream: WatchStream =
            timeout(QUIET, opening).await.map_err(|_| End::Lost("no answer".into()))??;
        loop {
            // After the watch has begun, so that nothing is missed in between.
            self.tell().await?;
            match timeout(QUIET, stream.message()).await {
                Ok(Ok(Some(_))) | Err(_) => {}
                Ok(Ok(None)) => return Err(End::Lost("the watch has ended".into())),
                Ok(Err(e)) => return Err(e.into()),
            }
        }
    }

    async fn tell(&mut self) -> Result<(), End> {
        let options = Some(GetOptions::new().with_prefix());
        let asking = self.client.get(self.prefix.as_str(), options);
        let found = timeout(QUIET, asking).await.map_err(|_| End::Lost("no answer".into()))??;
        let members: Vec<Node> = found.kvs().iter().filter_map(node).collect();
        if self.told.as_ref() != Some(&members) {
            self.told = Some(members.clone());
            self.lost = false;
            self.notices.send(Notice::Members(members)).map_err(|_| End::Unwanted)?;
        }
        Ok(())
    }
}
