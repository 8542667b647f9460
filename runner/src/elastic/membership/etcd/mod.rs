//! Members in etcd, for jobs over several machines.
//!
//! ```text
//! pipewright/JOB/members/NAME   a node as JSON, with the node's lease
//!                leader         who leads, with its lease
//!                generation     the counter; stays
//!                news           what the leader told last, as JSON; stays
//! ```
//!
//! Whatever must not happen twice is a transaction that compares first. No wall clock takes part:
//! etcd counts leases down by itself, and this side gives a lease up when it was not renewed for its time
//! to live on the monotonic clock, so never later than etcd does.

mod answers;
mod lease;
mod watch;

use super::{Held, Lease, Membership, MembershipError, News, Node, Notice, check_name};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, KeyValue,
    PutOptions, Txn, TxnOp,
};
use lease::EtcdLease;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A job's keys in an etcd.
pub struct EtcdMembership {
    runtime: Runtime,
    client: Client,
    address: String,
    job: String,
    time_to_live: Duration,
    /// The leader key's revision while this process leads.
    leads: Mutex<Option<i64>>,
}

impl EtcdMembership {
    /// The job called `job` in the etcd at `address` (several with commas), with leases of that time
    /// to live: whole seconds, as etcd has them.
    ///
    /// # Errors
    /// [`MembershipError::Unreachable`] when nobody answers there.
    pub fn connect(
        address: &str,
        job: &str,
        time_to_live: Duration,
    ) -> Result<Self, MembershipError> {
        check_name(job)?;
        let unreachable =
            |why: String| MembershipError::Unreachable { address: address.into(), why };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|e| unreachable(e.to_string()))?;
        let endpoints: Vec<&str> = address.split(',').collect();
        let options = ConnectOptions::new()
            .with_connect_timeout(time_to_live)
            .with_keep_alive(time_to_live / 2, time_to_live / 2)
            .with_keep_alive_while_idle(true);
        let client = runtime
            .block_on(Client::connect(endpoints, Some(options)))
            .map_err(|e| unreachable(answers::why(&e)))?;
        let (address, job) = (address.into(), job.into());
        let made = Self { runtime, client, address, job, time_to_live, leads: Mutex::default() };
        // Connections are made when they are first needed: now.
        made.patiently(|| made.generation())?;
        Ok(made)
    }

    /// Asks again while members elect their leader, as long as a lease lives.
    fn patiently<T>(
        &self,
        ask: impl FnMut() -> Result<T, MembershipError>,
    ) -> Result<T, MembershipError> {
        answers::patiently(self.time_to_live, ask)
    }

    fn key(&self, name: &str) -> String {
        format!("pipewright/{}/{name}", self.job)
    }

    fn member_key(&self, name: &str) -> String {
        self.key(&format!("members/{name}"))
    }

    /// Waits for an answer, not longer than a lease lives.
    fn ask<T, F: Future<Output = Result<T, Error>>>(
        &self,
        asking: impl FnOnce(Client) -> F,
    ) -> Result<T, MembershipError> {
        let asking = asking(self.client.clone());
        let unreachable = |why: String| {
            let address = self.address.clone();
            MembershipError::Unreachable { address, why }
        };
        let answer =
            self.runtime.block_on(async { tokio::time::timeout(self.time_to_live, asking).await });
        answer
            .map_err(|_| unreachable(format!("no answer in {:?}", self.time_to_live)))?
            .map_err(|e| unreachable(answers::why(&e)))
    }

    fn get(&self, key: &str) -> Result<Option<KeyValue>, MembershipError> {
        let found = self.ask(|mut client| async move { client.get(key, None).await })?;
        Ok(found.kvs().first().cloned())
    }

    /// Puts a key that must not be there, for as long as a new lease lives; `taken` where it is.
    fn hold(
        &self,
        key: String,
        value: String,
        taken: MembershipError,
    ) -> Result<(i64, EtcdLease), MembershipError> {
        let seconds = self.time_to_live.as_secs().max(1) as i64;
        let granted =
            self.ask(|mut client| async move { client.lease_grant(seconds, None).await })?;
        let id = granted.id();
        let put = TxnOp::put(key.clone(), value, Some(PutOptions::new().with_lease(id)));
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let txn = Txn::new().when([absent]).and_then([put]);
        let done = self.ask(|mut client| async move { client.txn(txn).await });
        // From here on it ends by itself, whatever happened.
        let lease = EtcdLease::start(
            self.runtime.handle(),
            self.client.clone(),
            key,
            id,
            self.time_to_live,
        );
        let done = done?;
        if !done.succeeded() {
            return Err(taken);
        }
        Ok((done.header().map_or(0, |header| header.revision()), lease))
    }
}

fn node(kv: &KeyValue) -> Option<Node> {
    serde_json::from_slice(kv.value()).ok()
}

impl Membership for EtcdMembership {
    fn join(&self, node: &Node) -> Result<Box<dyn Lease>, MembershipError> {
        check_name(&node.name)?;
        let value = serde_json::to_string(node).expect("plain data");
        let taken = MembershipError::Taken(node.name.clone());
        let key = self.member_key(&node.name);
        // What a question without an answer has put goes with its lease, before the next one.
        let held = self.patiently(|| self.hold(key.clone(), value.clone(), taken.clone()));
        Ok(Box::new(held?.1))
    }

    fn leave(&self, name: &str) -> Result<(), MembershipError> {
        check_name(name)?;
        let key = self.member_key(name);
        while let Some(kv) = self.patiently(|| self.get(&key))? {
            let Some(node) = node(&kv) else { break };
            let value = serde_json::to_string(&Node { leaving: true, ..node }).expect("plain data");
            let put = PutOptions::new().with_lease(kv.lease());
            let same = Compare::mod_revision(key.clone(), CompareOp::Equal, kv.mod_revision());
            let put = TxnOp::put(key.clone(), value, Some(put));
            let txn = Txn::new().when([same]).and_then([put]);
            // One that was done and not answered finds another revision, and the loop the wish.
            let done = self.patiently(|| {
                let txn = txn.clone();
                self.ask(|mut client| async move { client.txn(txn).await })
            })?;
            if done.succeeded() {
                return Ok(());
            }
        }
        let members = self.members()?.into_iter().map(|node| node.name).collect();
        Err(MembershipError::Unknown { name: name.into(), members })
    }

    fn remove(&self, name: &str) -> Result<(), MembershipError> {
        let key = self.member_key(name);
        self.ask(|mut client| async move { client.delete(key, None::<DeleteOptions>).await })
            .map(drop)
    }

    fn members(&self) -> Result<Vec<Node>, MembershipError> {
        let prefix = self.member_key("");
        let options = Some(GetOptions::new().with_prefix());
        let found = self.patiently(|| {
            let (prefix, options) = (prefix.clone(), options.clone());
            self.ask(|mut client| async move { client.get(prefix, options).await })
        })?;
        Ok(found.kvs().iter().filter_map(node).collect())
    }

    fn tell(&self, news: &News) -> Result<(), MembershipError> {
        let (key, value) = (self.key("news"), serde_json::to_string(news).expect("plain data"));
        self.ask(|mut client| async move { client.put(key, value, None).await }).map(drop)
    }

    fn news(&self) -> Result<News, MembershipError> {
        let found = self.get(&self.key("news"))?;
        let news = found.and_then(|kv| serde_json::from_slice(kv.value()).ok());
        Ok(news.unwrap_or_default())
    }

    fn watch(&self) -> Receiver<Notice> {
        watch::watch(self.runtime.handle(), self.client.clone(), self.member_key(""))
    }

    fn lead(&self, who: &str) -> Result<Box<dyn Lease>, MembershipError> {
        let (revision, lease) =
            self.hold(self.key("leader"), who.into(), MembershipError::NotLeader)?;
        if let Ok(mut leads) = self.leads.lock() {
            *leads = Some(revision);
        }
        Ok(Box::new(lease))
    }

    fn generation(&self) -> Result<u64, MembershipError> {
        let found = self.get(&self.key("generation"))?;
        let number = |kv: KeyValue| kv.value_str().ok()?.parse().ok();
        Ok(found.and_then(number).unwrap_or(0))
    }

    fn advance(&self, from: u64) -> Result<u64, MembershipError> {
        let leads = self.leads.lock().ok().and_then(|leads| *leads);
        let revision = leads.ok_or(MembershipError::NotLeader)?;
        let key = self.key("generation");
        loop {
            let now = self.get(&key)?;
            let number = |kv: &KeyValue| kv.value_str().ok()?.parse().ok();
            let found = now.as_ref().and_then(number).unwrap_or(0);
            if found > from {
                return Err(MembershipError::Generation { found });
            }
            let same = now.as_ref().map_or(0, KeyValue::mod_revision);
            let compares = [
                Compare::create_revision(self.key("leader"), CompareOp::Equal, revision),
                Compare::mod_revision(key.clone(), CompareOp::Equal, same),
            ];
            let put = TxnOp::put(key.clone(), (from + 1).to_string(), None);
            let txn = Txn::new().when(compares).and_then([put]);
            if self.ask(|mut client| async move { client.txn(txn).await })?.succeeded() {
                return Ok(from + 1);
            }
            let leader = self.get(&self.key("leader"))?;
            if leader.is_none_or(|kv| kv.create_revision() != revision) {
                return Err(MembershipError::NotLeader);
            }
        }
    }
}
