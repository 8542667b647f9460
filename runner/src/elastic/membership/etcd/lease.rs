//! A lease that a task renews.

use super::{Held, Lease};
use etcd_client::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long giving a lease up may take; etcd ends it by itself otherwise.
const FAREWELL: Duration = Duration::from_secs(1);

/// A lease with the key that it holds.
pub(super) struct EtcdLease {
    held: Arc<AtomicU8>,
    renewing: JoinHandle<()>,
    runtime: Handle,
    client: Client,
    id: i64,
}

impl EtcdLease {
    pub(super) fn start(
        runtime: &Handle,
        client: Client,
        key: String,
        id: i64,
        time_to_live: Duration,
    ) -> Self {
        let held = Arc::new(AtomicU8::new(Held::Yes as u8));
        let state = held.clone();
        let renewed = client.clone();
        let renewing = runtime.spawn(async move {
            let end = renew(renewed, &key, id, time_to_live).await;
            state.store(end as u8, Ordering::Relaxed);
        });
        Self { held, renewing, runtime: runtime.clone(), client, id }
    }
}

/// Renews until it is too late or the key is gone.
async fn renew(client: Client, key: &str, id: i64, time_to_live: Duration) -> Held {
    let every = time_to_live / 4;
    let mut deadline = Instant::now() + time_to_live;
    loop {
        tokio::time::sleep(every).await;
        let asked = Instant::now();
        match timeout(every, once(client.clone(), key, id)).await {
            Ok(Ok(Some(Held::Yes))) => deadline = asked + time_to_live,
            Ok(Ok(Some(end))) => return end,
            // Not answered; it still counts until its time is over.
            Ok(Ok(None) | Err(_)) | Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Held::Expired;
        }
    }
}

/// Renews once, on a stream of its own: an old one may hang on a connection that is gone.
async fn once(mut client: Client, key: &str, id: i64) -> Result<Option<Held>, etcd_client::Error> {
    let (mut keeper, mut answers) = client.lease_keep_alive(id).await?;
    keeper.keep_alive().await?;
    let Some(answer) = answers.message().await? else { return Ok(None) };
    if answer.ttl() <= 0 {
        return Ok(Some(Held::Expired));
    }
    let found = client.get(key, None).await?;
    let mine = found.kvs().first().is_some_and(|kv| kv.lease() == id);
    Ok(Some(if mine { Held::Yes } else { Held::Removed }))
}

impl Lease for EtcdLease {
    fn held(&self) -> Held {
        match self.held.load(Ordering::Relaxed) {
            0 => Held::Yes,
            1 => Held::Expired,
            _ => Held::Removed,
        }
    }
}

impl Drop for EtcdLease {
    fn drop(&mut self) {
        self.renewing.abort();
        let (mut client, id) = (self.client.clone(), self.id);
        let farewell = async move { timeout(FAREWELL, client.lease_revoke(id)).await };
        // Where etcd cannot be reached the lease ends by itself.
        let _ = self.runtime.block_on(farewell);
    }
}
