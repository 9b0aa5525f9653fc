//! The contents of a control plane, read from its etcd in one request: objects of all kinds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

const ROOT: &str = "/registry/";
/// The first key behind all that begin with [`ROOT`].
const BEHIND_ROOT: &str = "/registry0";

/// A healthy etcd answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects that kube-apiserver writes by itself. Their changes say nothing about tests.
const RESTLESS: [&str; 9] = [
    "apiregistration.k8s.io/",
    "configmaps/kube-system/extension-apiserver-authentication",
    "configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking",
    "flowschemas/",
    "leases/kube-system/apiserver-",
    "masterleases/",
    "peerserverleases/",
    "prioritylevelconfigurations/",
    // The used node ports, which are freed with their Services.
    "ranges/",
];

/// Every object's key without [`ROOT`], and the revision that wrote it last.
#[derive(Debug, Default)]
pub(crate) struct Contents(BTreeMap<String, u64>);

impl Contents {
    /// Reads the contents of the etcd that listens on this port of the loopback.
    pub(crate) async fn read(etcd_port: u16) -> Result<Self, String> {
        let read = timeout(PATIENCE, range(etcd_port)).await;
        let answer = read.map_err(|_| "etcd does not answer".to_owned())??;
        let mut contents = Self::default();
        for entry in answer.kvs {
            let key = String::from_utf8_lossy(&entry.key.0).into_owned();
            let key = key.strip_prefix(ROOT).unwrap_or(&key).to_owned();
            let revision = entry.mod_revision.parse().map_err(|_| "no revision")?;
            contents.0.insert(key, revision);
        }
        Ok(contents)
    }

    /// Whether this object is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The keys that are new since `before`, without those in [`RESTLESS`].
    pub(crate) fn added_since(&self, before: &Self) -> BTreeSet<String> {
        let added = |key: &&String| !before.has(key) && !is_restless(key);
        self.0.keys().filter(added).cloned().collect()
    }

    /// The keys of `before` that were deleted or written since, without those in [`RESTLESS`].
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let changed = |(key, revision): &(&String, &u64)| {
            self.0.get(*key) != Some(*revision) && !is_restless(key)
        };
        let objects = before.0.iter().filter(changed);
        objects.map(|(key, _)| key.clone()).collect()
    }

    /// Whether all objects whose keys begin with `prefix` are among these.
    pub(crate) fn are_all_in(&self, prefix: &str, keys: &BTreeSet<String>) -> bool {
        let from = self.0.range(prefix.to_owned()..);
        let mut all = from.take_while(|(key, _)| key.starts_with(prefix));
        all.all(|(key, _)| keys.contains(key))
    }
}

fn is_restless(key: &str) -> bool {
    RESTLESS.iter().any(|prefix| key.starts_with(prefix))
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    key: ByteString,
    mod_revision: String,
}

async fn range(etcd_port: u16) -> Result<Range, String> {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let body = json!({ "key": bytes(ROOT), "range_end": bytes(BEHIND_ROOT), "keys_only": true });
    ask(etcd_port, "/v3/kv/range", &body).await
}

/// Compacts the revisions before this one. After that and a restart of the API server, a watch from
/// an older revision, or a further page of a list from there, fails as too old.
pub(crate) async fn compact(etcd_port: u16, revision: u64) -> Result<(), String> {
    let body = json!({ "revision": revision.to_string(), "physical": true });
    let _: Value = ask(etcd_port, "/v3/kv/compaction", &body).await?;
    Ok(())
}

/// Sends a request to etcd's JSON gateway, so that no etcd client is needed.
async fn ask<T: DeserializeOwned>(etcd_port: u16, path: &str, body: &Value) -> Result<T, String> {
    let url = format!("http://127.0.0.1:{etcd_port}");
    let mut config = Config::new(url.parse().map_err(|_| "no such port")?);
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    let request = http::Request::post(path).body(body.to_string().into_bytes());
    let request = request.map_err(|error| error.to_string())?;
    client
        .request(request)
        .await
        .map_err(|error| format!("etcd: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(objects: &[(&str, u64)]) -> Contents {
        let objects = objects
            .iter()
            .map(|(key, revision)| ((*key).to_owned(), *revision));
        Contents(objects.collect())
    }

    #[test]
    fn what_was_added_and_what_was_changed_are_told_apart() {
        let before = contents(&[("minions/a", 1), ("minions/b", 2), ("roles/x/y", 3)]);
        let now = contents(&[
            ("leases/kube-system/apiserver-1", 7),
            ("leases/kube-system/ccm", 7),
            ("minions/a", 1),
            ("minions/c", 9),
            ("roles/x/y", 8),
            ("roles/z/z", 8),
        ]);
        let added = now.added_since(&before);
        let expected = ["leases/kube-system/ccm", "minions/c", "roles/z/z"];
        assert!(added.iter().eq(&expected), "{added:?}");
        assert_eq!(now.changed_since(&before), ["minions/b", "roles/x/y"]);
        assert!(before.changed_since(&before).is_empty());
        // A collection may be deleted only if nothing else is in it.
        assert!(now.are_all_in("roles/z/", &added));
        assert!(!now.are_all_in("minions/", &added));
        assert!(!now.are_all_in("leases/kube-system/", &added));
    }
}
