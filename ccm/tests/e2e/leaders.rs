//! The leaders over time, from the Lease and from each process's log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::world::{NAME, NAMESPACE};

/// The times at which the Lease was seen to be renewed or taken, and by whom.
type Renewals = Arc<Mutex<Vec<(Instant, String)>>>;

/// Watches until it is dropped.
pub struct Leaders {
    renewals: Renewals,
    /// The logs of all ccm containers so far. They are open files, so they can be read after the
    /// Pod is gone.
    logs: Arc<Mutex<BTreeMap<PathBuf, File>>>,
    /// How often the logs said before [`forget`](Self::forget) that a Lease expires.
    expired: Mutex<usize>,
    watch: JoinHandle<()>,
    finder: JoinHandle<()>,
}

impl Drop for Leaders {
    fn drop(&mut self) {
        self.watch.abort();
        self.finder.abort();
    }
}

/// The time in which a process led. It has no end if the process's log shows none.
#[derive(Debug, Clone)]
pub struct Term {
    identity: String,
    from: Timestamp,
    to: Option<Timestamp>,
}

impl Leaders {
    /// `machines` are the directories with the Pods' logs, one for each machine.
    pub fn watch(client: &Client, machines: Vec<PathBuf>) -> Self {
        let renewals = Renewals::default();
        let logs = Arc::<Mutex<BTreeMap<PathBuf, File>>>::default();
        Self {
            watch: tokio::spawn(follow(client.clone(), Arc::clone(&renewals))),
            finder: tokio::spawn(find(machines, Arc::clone(&logs))),
            renewals,
            logs,
            expired: Mutex::default(),
        }
    }

    /// Drops the observations of the Lease so far, except the last.
    pub fn forget(&self) {
        *self.expired.lock().unwrap() = self.expired();
        let mut renewals = self.renewals.lock().unwrap();
        let last = renewals.pop();
        renewals.clear();
        renewals.extend(last);
    }

    /// The longest time in which nobody renewed or acquired the Lease, and how many processes held
    /// it.
    pub fn longest_gap(&self) -> (Duration, usize) {
        let renewals = self.renewals.lock().unwrap();
        let held: Vec<&(Instant, String)> = renewals
            .iter()
            .filter(|(_, holder)| !holder.is_empty())
            .collect();
        let gaps = held.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let mut holders: Vec<&str> = held.iter().map(|(_, holder)| &**holder).collect();
        holders.sort_unstable();
        holders.dedup();
        (gaps.max().unwrap_or_default(), holders.len())
    }

    /// Whether a process let its Lease expire, because it does not know how a call ended. A
    /// provider that stops before its ccm may cause that.
    pub fn let_expire(&self) -> bool {
        self.expired() > *self.expired.lock().unwrap()
    }

    fn expired(&self) -> usize {
        let texts = self.texts().into_iter();
        texts
            .map(|text| text.matches("letting the Lease expire").count())
            .sum()
    }

    fn texts(&self) -> Vec<String> {
        let read = |file: &mut File| {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        self.logs.lock().unwrap().values_mut().map(read).collect()
    }

    /// The terms of all processes by their own logs, in order.
    pub fn terms(&self) -> Vec<Term> {
        let texts = self.texts();
        let mut terms: Vec<Term> = texts.iter().flat_map(|text| terms_in(text)).collect();
        terms.sort_by_key(|term| term.from);
        terms
    }

    /// Checks that no process began to lead before the previous term had ended.
    pub fn check_never_two(&self) -> usize {
        let terms = self.terms();
        for pair in terms.windows(2) {
            let ended = pair[0].to.is_some_and(|to| to <= pair[1].from);
            assert!(ended, "two led: {pair:#?}");
        }
        terms.len()
    }
}

async fn follow(client: Client, renewals: Renewals) {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let stream = watcher(leases, only).default_backoff().applied_objects();
    let mut stream = std::pin::pin!(stream);
    loop {
        // An error is followed by a new watch.
        let Ok(lease) = stream.try_next().await else {
            continue;
        };
        let Some(spec) = lease.and_then(|lease| lease.spec) else {
            continue;
        };
        let holder = spec.holder_identity.unwrap_or_default();
        renewals.lock().unwrap().push((Instant::now(), holder));
    }
}

/// Opens logs as they appear: kubelet removes them with their Pod.
async fn find(machines: Vec<PathBuf>, logs: Arc<Mutex<BTreeMap<PathBuf, File>>>) {
    let mut look = tokio::time::interval(Duration::from_millis(100));
    loop {
        look.tick().await;
        for machine in &machines {
            for path in logs_of(machine) {
                let mut logs = logs.lock().unwrap();
                if !logs.contains_key(&path)
                    && let Ok(file) = File::open(&path)
                {
                    logs.insert(path, file);
                }
            }
        }
    }
}

/// `PODS/kube-system_NAME-…_UID/ccm/N.log`
fn logs_of(pods: &Path) -> Vec<PathBuf> {
    let within = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let ours = format!("{NAMESPACE}_{NAME}-");
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&ours)
    };
    let pods = within(pods).into_iter().filter(is_ours);
    pods.flat_map(|pod| within(&pod.join("ccm"))).collect()
}

/// A line of a container's log is `TIME STREAM TAG OWN-TIME TEXT`. `TIME` is when containerd got
/// the line. The process's own time counts, and all machines have one clock.
fn terms_in(log: &str) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for line in log.lines() {
        let at = line
            .split(' ')
            .nth(3)
            .and_then(|time| time.parse::<Timestamp>().ok());
        let Some(at) = at else {
            continue;
        };
        if let Some((_, identity)) = line.split_once(" leading identity=") {
            terms.push(Term {
                identity: identity.to_owned(),
                from: at,
                to: None,
            });
        } else if (line.contains(" stopped leading") || line.contains("lost the Lease"))
            && let Some(last) = terms.last_mut()
        {
            last.to = Some(at);
        }
    }
    terms
}

#[test]
fn a_term_is_from_leading_to_just_before_the_release() {
    let log = "\
2026-11-22T03:00:00.6Z stdout F 2026-11-22T03:00:00.5Z  INFO another process leads holder=\"b\"
2026-11-22T03:00:01.1Z stdout F 2026-11-22T03:00:01Z  INFO ccm::lease::term: leading identity=a
2026-11-22T03:00:09.3Z stdout F 2026-11-22T03:00:09Z  INFO ccm::lease::term: stopped leading
2026-11-22T03:00:09.4Z stdout F 2026-11-22T03:00:09.2Z  INFO ccm::lease::term: released the Lease
2026-11-22T03:00:10Z stdout F 2026-11-22T03:00:10Z  INFO ccm::lease::term: leading identity=a
";
    let terms = terms_in(log);
    assert_eq!(terms.len(), 2);
    assert_eq!(terms[0].identity, "a");
    assert_eq!(
        terms[0]
            .to
            .map(|to| to.duration_since(terms[0].from).as_secs()),
        Some(8)
    );
    assert!(terms[1].to.is_none());
}
