//! `/healthz`, `/livez`, `/readyz`: named checks, and answers in the text format of upstream's
//! components.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::get;

use super::{Site, plain};
use crate::core::text;

/// The longest reason, in characters.
const REASON_CHARS: usize = 256;
/// The text instead of a reason for callers that may not read the status page, as in upstream's
/// components.
const WITHHELD: &str = "reason withheld";

const PING: &str = "ping";

/// The endpoint of a check. `/livez` has no checks: the kubelet restarts a container that fails it,
/// and a restart repairs neither a cloud nor an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Probe {
    /// `/healthz`: whether the process does its work. A leader that did not renew the Lease in time
    /// does not.
    Health,
    /// `/readyz`: whether the cluster's identity is read, the caches are synced and the provider is
    /// connected.
    Ready,
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
type Checks = BTreeMap<Probe, Vec<(Arc<str>, Check)>>;

#[derive(Clone, Default)]
pub(crate) struct Health {
    checks: Arc<RwLock<Checks>>,
}

impl Health {
    /// Adds a check, or replaces the probe's check of that name in its place. The answer lists
    /// checks in the order of their addition. A check must not wait (it reads known state), and its
    /// reason must contain no secrets.
    pub(crate) fn check(
        &self,
        probe: Probe,
        name: impl Into<Arc<str>>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let name = name.into();
        let check: Check = Arc::new(check);
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        let checks = checks.entry(probe).or_default();
        match checks.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = check,
            None => checks.push((name, check)),
        }
    }

    /// Removes the probe's check of that name.
    pub(crate) fn no_check(&self, probe: Probe, name: &str) {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(checks) = checks.get_mut(&probe) {
            checks.retain(|(known, _)| &**known != name);
        }
    }

    /// Runs the probe's checks. They run without the lock, so a check may add another.
    pub(crate) fn results(&self, probe: Probe) -> Vec<(Arc<str>, Result<(), String>)> {
        let checks = self
            .checks
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&probe)
            .cloned()
            .unwrap_or_default();
        checks
            .into_iter()
            .map(|(name, check)| (name, check()))
            .collect()
    }
}

type Asked = Query<Vec<(String, String)>>;

/// The endpoints, each with one page for all of its checks and one for each check.
pub(super) fn routes() -> Router<Arc<Site>> {
    let mut router = Router::new();
    for (endpoint, probe) in [
        ("healthz", Some(Probe::Health)),
        ("livez", None),
        ("readyz", Some(Probe::Ready)),
    ] {
        let all = move |State(site): State<Arc<Site>>, caller: Parts, query: Asked| async move {
            answer(endpoint, &shown(&site, &caller, probe).await, &query)
        };
        let single = move |State(site): State<Arc<Site>>,
                           caller: Parts,
                           Path(name): Path<String>| async move {
            one(&shown(&site, &caller, probe).await, &name)
        };
        router = router
            .route(&format!("/{endpoint}"), get(all))
            .route(&format!("/{endpoint}/{{name}}"), get(single));
    }
    router
}

/// The results of the probe's checks. Only callers that may read the status page see why a check
/// failed: a reason may name the cloud, its endpoints and an account.
async fn shown(
    site: &Site,
    caller: &Parts,
    probe: Option<Probe>,
) -> Vec<(Arc<str>, Result<(), String>)> {
    let mut results = probe.map_or_else(Vec::new, |probe| site.health.results(probe));
    let failed = results.iter().any(|(_, result)| result.is_err());
    if failed && !site.reviewer.sees_reasons(caller).await {
        for (_, result) in &mut results {
            if let Err(reason) = result {
                WITHHELD.clone_into(reason);
            }
        }
    }
    results
}

type Results = [(Arc<str>, Result<(), String>)];

/// The answer for a single check.
fn one(results: &Results, name: &str) -> Response {
    let found = results.iter().find(|(known, _)| &**known == name);
    match found.map(|(_, result)| result) {
        Some(Ok(())) => plain(StatusCode::OK, "ok"),
        None if name == PING => plain(StatusCode::OK, "ok"),
        Some(Err(reason)) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {}\n", one_line(reason)),
        ),
        None => plain(
            StatusCode::NOT_FOUND,
            format!("there is no check {name:?} here\n"),
        ),
    }
}

fn answer(endpoint: &str, results: &Results, query: &[(String, String)]) -> Response {
    let verbose = query.iter().any(|(key, _)| key == "verbose");
    let excluded: BTreeSet<&str> = query
        .iter()
        .filter(|(key, _)| key == "exclude")
        .map(|(_, name)| name.as_str())
        .collect();
    let (passed, text) = report(endpoint, results, verbose, &excluded);
    let status = if passed {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    plain(status, text)
}

/// Whether all checks that are not excluded passed, and the text of the answer. The text has the
/// list if one of these failed or the caller asks for it.
fn report(
    endpoint: &str,
    results: &Results,
    verbose: bool,
    excluded: &BTreeSet<&str>,
) -> (bool, String) {
    let passed = results
        .iter()
        .all(|(name, result)| result.is_ok() || excluded.contains(&**name));
    if passed && !verbose {
        return (true, "ok".to_owned());
    }
    let mut text = String::new();
    let mut unknown = excluded.clone();
    let ping = (Arc::from(PING), Ok(()));
    for (name, result) in std::iter::once(&ping).chain(results) {
        // Writing to a String does not fail.
        let _ = match result {
            _ if unknown.remove(&**name) => writeln!(text, "[+]{name} excluded: ok"),
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(reason) => writeln!(text, "[-]{name} failed: {}", one_line(reason)),
        };
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(
            text,
            "warn: some health checks cannot be excluded: no matches for {}",
            names.join(",")
        );
    }
    let verdict = if passed { "passed" } else { "failed" };
    let _ = writeln!(text, "{endpoint} check {verdict}");
    (passed, text)
}

fn one_line(reason: &str) -> String {
    text::plain(reason).chars().take(REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(of: &[(&str, Result<(), &str>)]) -> Vec<(Arc<str>, Result<(), String>)> {
        of.iter()
            .map(|(name, result)| (Arc::from(*name), result.map_err(str::to_owned)))
            .collect()
    }

    #[test]
    fn b_m4_health_text_is_upstreams() {
        let good = results(&[("lease", Ok(())), ("loops", Ok(()))]);
        let bad = results(&[
            ("lease", Err("not renewed\nfor 12s")),
            ("loops", Ok(())),
            ("last", Err("x")),
        ]);
        for (of, verbose, expected) in [
            (&good, false, (true, "ok")),
            (
                &good,
                true,
                (
                    true,
                    "[+]ping ok\n[+]lease ok\n[+]loops ok\nhealthz check passed\n",
                ),
            ),
            (
                &bad,
                false,
                (
                    false,
                    "[+]ping ok\n[-]lease failed: not renewed for 12s\n[+]loops ok\n[-]last failed: x\nhealthz check failed\n",
                ),
            ),
        ] {
            let (passed, text) = report("healthz", of, verbose, &BTreeSet::new());
            assert_eq!((passed, text.as_str()), expected);
        }
        assert_eq!(
            report("healthz", &bad, true, &BTreeSet::new()),
            report("healthz", &bad, false, &BTreeSet::new())
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let results = results(&[("a", Err("é".repeat(1000).as_str()))]);
        let (_, text) = report("readyz", &results, false, &BTreeSet::new());
        assert!(text.contains(&format!("failed: {}\n", "é".repeat(REASON_CHARS))));
    }

    #[test]
    fn a_check_of_the_same_name_replaces_the_one_before() {
        let health = Health::default();
        health.check(Probe::Health, "lease", || Err("first".to_owned()));
        health.check(Probe::Health, "other", || Ok(()));
        health.check(Probe::Ready, "lease", || Err("ready".to_owned()));
        health.check(Probe::Health, "lease", || Err("second".to_owned()));
        assert_eq!(
            health.results(Probe::Health),
            results(&[("lease", Err("second")), ("other", Ok(()))])
        );
        assert_eq!(
            health.results(Probe::Ready),
            results(&[("lease", Err("ready"))])
        );
        health.no_check(Probe::Health, "lease");
        health.no_check(Probe::Health, "never");
        assert_eq!(health.results(Probe::Health), results(&[("other", Ok(()))]));
        assert_eq!(health.results(Probe::Ready).len(), 1);
    }
}
