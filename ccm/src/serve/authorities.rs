//! The authorities whose client certificates are accepted: from files, or from the ConfigMap in
//! which the API server publishes its own.

mod any_certificate;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::http::request::Parts;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::auth::Admitted;
use super::tls::read;
use super::user::{User, common_name};
use crate::args::{AuthenticationConfig, RequestHeaderConfig};

pub(super) use any_certificate::AnyCertificate;

const PROXY_FLAG: &str = "--requestheader-client-ca-file";
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
/// How often the ConfigMap is read. Authorities usually change over months, and a cluster accepts
/// the old and the new one together for a long time.
const LOOKUP: Duration = Duration::from_mins(1);
/// The wait after a failed read, unless the configuration tolerates failures.
const AGAIN: Duration = Duration::from_secs(5);
/// How often the files are read.
const FILES: Duration = Duration::from_secs(10);

/// Certificates of authorities, and a verifier that trusts them.
#[derive(Clone)]
pub(super) struct Bundle {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Bundle {
    fn of(pem: &[u8]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate?)?;
        }
        ensure!(!roots.is_empty(), "no CERTIFICATE section");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self {
            pem: pem.to_vec(),
            verifier,
        })
    }

    /// Whether the certificate is for clients, valid now, and signed by one of these authorities.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (certificate, intermediates) = chain
            .split_first()
            .ok_or(rustls::Error::NoCertificatesPresented)?;
        let verified =
            self.verifier
                .verify_client_cert(certificate, intermediates, UnixTime::now());
        verified.map(|_| ())
    }
}

/// The accepted authorities at the moment.
#[derive(Clone, Default)]
pub(super) struct Trust {
    /// Authorities of users.
    pub(super) clients: Option<Bundle>,
    /// Authorities of front proxies, and the headers in which those name the user.
    pub(super) proxies: Option<(Bundle, RequestHeaderConfig)>,
    /// Incremented whenever one of them is set, even to the same value.
    generation: u64,
}

/// The certificates that a caller showed on a connection. The handshake proved that the caller has
/// the key of the first one. They are verified once for the connection, and again after the trust
/// was set. So further requests on a connection build no chain while the trust stays.
#[derive(Clone)]
pub(super) struct Shown(Arc<ShownChain>);

struct ShownChain {
    chain: Vec<CertificateDer<'static>>,
    /// With the generation of the trust that it was made with.
    verdict: tokio::sync::Mutex<Option<(u64, Arc<Verdict>)>>,
}

/// The result of verifying a connection's certificates.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The certificate is a front proxy's, which names the user in these headers.
    pub(super) proxy: Option<RequestHeaderConfig>,
    /// The user in the certificate.
    pub(super) user: Option<User>,
    /// The check for users or that for front proxies refused the certificate.
    pub(super) refused: bool,
}

impl Verdict {
    fn of(chain: &[CertificateDer<'_>], trust: &Trust) -> Self {
        let mut verdict = Self {
            proxy: None,
            user: None,
            refused: false,
        };
        let Some(certificate) = chain.first() else {
            return verdict;
        };
        if let Some((bundle, headers)) = &trust.proxies {
            let names = &headers.allowed_names;
            let named = || names.is_empty() || names.contains(&common_name(certificate));
            if bundle.verify(chain).is_ok() && named() {
                verdict.proxy = Some(headers.clone());
            } else {
                verdict.refused = true;
            }
        }
        if let Some(bundle) = &trust.clients {
            match bundle
                .verify(chain)
                .map_err(|error| error.to_string())
                .and_then(|()| User::of_certificate(certificate).map_err(|error| error.to_string()))
            {
                Ok(user) => verdict.user = user.map(User::authenticated),
                Err(error) => {
                    tracing::debug!(error, "a client certificate is refused");
                    verdict.refused = true;
                }
            }
        }
        verdict
    }
}

impl Shown {
    /// `None` for most callers, which show no certificate.
    pub(super) fn new(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let chain: Vec<_> = chain.iter().map(|der| der.clone().into_owned()).collect();
        (!chain.is_empty()).then(|| {
            Self(Arc::new(ShownChain {
                chain,
                verdict: tokio::sync::Mutex::default(),
            }))
        })
    }
}

/// The authorities whose client certificates are accepted. Clones share them.
#[derive(Clone)]
pub(crate) struct Authorities(Arc<Inner>);

struct Inner {
    config: AuthenticationConfig,
    /// The flag of `config.client_ca_file`, for errors.
    client_flag: String,
    trust: RwLock<Arc<Trust>>,
    /// Whether a read of the ConfigMap has succeeded.
    looked_up: AtomicBool,
    /// Permits the port one chain at a time, on a thread for blocking work. So verifying strangers'
    /// chains takes at most one core for each port, and no thread that renews the Lease.
    building: Arc<Semaphore>,
}

impl Authorities {
    /// Reads the files of the configuration.
    pub(super) async fn read(config: &AuthenticationConfig) -> anyhow::Result<Self> {
        Self::with(config, "").await
    }

    /// The authorities of webhook callers. Without a file, the port requests no certificate.
    pub(super) async fn of_webhooks(file: Option<&Path>) -> anyhow::Result<Self> {
        let config = AuthenticationConfig {
            client_ca_file: file.map(Path::to_owned),
            ..AuthenticationConfig::default()
        };
        Self::with(&config, "webhook-").await
    }

    async fn with(config: &AuthenticationConfig, prefix: &str) -> anyhow::Result<Self> {
        let authorities = Self(Arc::new(Inner {
            config: config.clone(),
            client_flag: format!("--{prefix}client-ca-file"),
            trust: RwLock::default(),
            looked_up: AtomicBool::new(false),
            building: Arc::new(Semaphore::new(1)),
        }));
        authorities.read_files().await?;
        Ok(authorities)
    }

    /// Verifies the certificates. `None`: the verification panicked, or the runtime is shutting
    /// down.
    pub(super) async fn judge(&self, shown: &Shown) -> Option<Arc<Verdict>> {
        let trust = self.trust();
        let mut known = shown.0.verdict.lock().await;
        if let Some((generation, verdict)) = &*known
            && *generation == trust.generation
        {
            return Some(Arc::clone(verdict));
        }
        let turn = Arc::clone(&self.0.building).acquire_owned().await.ok()?;
        let generation = trust.generation;
        let chain = Arc::clone(&shown.0);
        let building = spawn_blocking(move || {
            // If the caller hangs up, the waiting future ends, but not this thread. The thread
            // keeps the permit.
            let _turn = turn;
            Verdict::of(&chain.chain, &trust)
        });
        let verdict = building.await;
        let verdict = Arc::new(verdict.ok()?);
        *known = Some((generation, Arc::clone(&verdict)));
        Some(verdict)
    }

    /// Admits everybody if no client authorities are configured, else callers whose certificate one
    /// of them signed. The error is the text for the caller.
    pub(super) async fn admit_client(&self, request: &Parts) -> Result<Admitted, &'static str> {
        if self.trust().clients.is_none() {
            return Ok(Admitted::Anybody);
        }
        let shown = request.extensions.get::<Shown>();
        let shown = shown.ok_or("a client certificate is needed here\n")?;
        match self.judge(shown).await {
            Some(verdict) if !verdict.refused => Ok(Admitted::Authenticated),
            _ => Err("the client certificate is not of an authority that is trusted here\n"),
        }
    }

    pub(super) fn trust(&self) -> Arc<Trust> {
        let trust = self.0.trust.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&trust)
    }

    fn set(&self, change: impl FnOnce(&mut Trust)) {
        let mut trust = self.0.trust.write().unwrap_or_else(PoisonError::into_inner);
        let trust = Arc::make_mut(&mut trust);
        trust.generation += 1;
        change(trust);
    }

    /// Reads files and ConfigMap again and again. It returns, with the reason, only if the
    /// ConfigMap is needed, the API server refuses it (403) before the first successful read, and
    /// the configuration does not tolerate that.
    pub(crate) async fn keep(self, client: Client) -> String {
        let files = self.keep_files();
        let lookup = self.keep_lookup(client);
        tokio::select! {
            never = files => match never {},
            refused = lookup => refused,
        }
    }

    /// Reads the files again and again.
    pub(super) async fn keep_files(&self) -> std::convert::Infallible {
        let mut reported = String::new();
        loop {
            tokio::time::sleep(FILES).await;
            let trouble = self.read_files().await.err();
            let trouble = trouble.map_or_else(String::new, |error| error.to_string());
            if trouble != reported && !trouble.is_empty() {
                tracing::warn!(
                    error = trouble,
                    "keeping the old authorities of client certificates"
                );
            }
            reported = trouble;
        }
    }

    /// Reads the files, and trusts the authorities in those that have changed. The error names
    /// each file that cannot be used.
    async fn read_files(&self) -> anyhow::Result<()> {
        let (config, trust) = (&self.0.config, self.trust());
        let mut wrong = Vec::new();
        if let Some(path) = &config.client_ca_file {
            match changed(&self.0.client_flag, path, trust.clients.as_ref()).await {
                Ok(None) => {}
                Ok(Some(bundle)) => self.set(|trust| trust.clients = Some(bundle)),
                Err(error) => wrong.push(format!("{error:#}")),
            }
        }
        let proxies = trust.proxies.as_ref().map(|(bundle, _)| bundle);
        if let Some(path) = &config.request_header.client_ca_file {
            match changed(PROXY_FLAG, path, proxies).await {
                Ok(None) => {}
                Ok(Some(bundle)) => {
                    let headers = config.request_header.clone();
                    self.set(|trust| trust.proxies = Some((bundle, headers)));
                }
                Err(error) => wrong.push(format!("{error:#}")),
            }
        }
        anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("; "));
        Ok(())
    }

    async fn keep_lookup(&self, client: Client) -> String {
        let config = &self.0.config;
        let needs =
            config.client_ca_file.is_none() || config.request_header.client_ca_file.is_none();
        if config.skip_lookup || !needs {
            return std::future::pending().await;
        }
        let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        let mut reported = String::new();
        loop {
            let trouble = match api.get_opt(CONFIG_MAP).await {
                Ok(map) => self.take(map.unwrap_or_default()),
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    let first = !self.0.looked_up.load(Ordering::Relaxed);
                    if first && !config.tolerate_lookup_failure {
                        return format!(
                            "cannot read the ConfigMap {NAMESPACE}/{CONFIG_MAP} with the authorities of client certificates: {}. Bind the Role \
                             extension-apiserver-authentication-reader of {NAMESPACE}, or set --authentication-tolerate-lookup-failure or \
                             --authentication-skip-lookup",
                            status.message
                        );
                    }
                    Err(status.message)
                }
                Err(error) => Err(error.to_string()),
            };
            let again = match trouble {
                Ok(()) => {
                    self.0.looked_up.store(true, Ordering::Relaxed);
                    reported.clear();
                    LOOKUP
                }
                Err(trouble) => {
                    if reported != trouble {
                        tracing::warn!(
                            error = trouble,
                            "cannot read the authorities of client certificates in {NAMESPACE}/{CONFIG_MAP}; keeping the known ones"
                        );
                        reported = trouble;
                    }
                    if config.tolerate_lookup_failure {
                        LOOKUP
                    } else {
                        AGAIN
                    }
                }
            };
            tokio::time::sleep(again).await;
        }
    }

    /// Applies the ConfigMap: the users' part, then the front proxies' part, each only if no file
    /// configures it. At unusable content this stops, and the trust of that part stays as it was.
    fn take(&self, map: ConfigMap) -> Result<(), String> {
        let config = &self.0.config;
        let data = map.data.unwrap_or_default();
        let text = |key: &str| {
            data.get(key)
                .map(String::as_str)
                .filter(|text| !text.is_empty())
        };
        let names = |key: &str| -> Result<Vec<String>, String> {
            let Some(text) = text(key) else {
                return Ok(Vec::new());
            };
            serde_json::from_str(text)
                .map_err(|error| format!("{key}: not a list of names: {error}"))
        };
        let headers = |key: &str| -> Result<Vec<String>, String> {
            Ok(names(key)?
                .into_iter()
                .map(|name| name.to_ascii_lowercase())
                .collect())
        };
        let bundle = |key: &str| -> Result<Option<Bundle>, String> {
            let bundle = text(key).map(|text| Bundle::of(text.as_bytes()));
            bundle
                .transpose()
                .map_err(|error| format!("{key}: {error:#}"))
        };
        if config.client_ca_file.is_none() {
            let clients = bundle("client-ca-file")?;
            self.set(|trust| trust.clients = clients);
        }
        if config.request_header.client_ca_file.is_none() {
            let proxies = match bundle("requestheader-client-ca-file")? {
                None => None,
                Some(bundle) => {
                    let headers = RequestHeaderConfig {
                        client_ca_file: None,
                        allowed_names: names("requestheader-allowed-names")?,
                        username_headers: headers("requestheader-username-headers")?,
                        uid_headers: headers("requestheader-uid-headers")?,
                        group_headers: headers("requestheader-group-headers")?,
                        extra_header_prefixes: headers("requestheader-extra-headers-prefix")?,
                    };
                    Some((bundle, headers))
                }
            };
            self.set(|trust| trust.proxies = proxies);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn taken(&self, data: &[(&str, &str)]) -> Result<(), String> {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        self.take(ConfigMap {
            data: Some(data.collect()),
            ..ConfigMap::default()
        })
    }
}

/// The file's authorities, if they differ from those of before.
async fn changed(
    flag: &str,
    path: &Path,
    before: Option<&Bundle>,
) -> anyhow::Result<Option<Bundle>> {
    let pem = read(flag, path).await?;
    if before.is_some_and(|before| before.pem == pem) {
        return Ok(None);
    }
    let shown = path.to_string_lossy();
    let bundle = Bundle::of(&pem)
        .with_context(|| format!("{flag}: {shown:?} holds no PEM certificates of authorities"))?;
    if before.is_some() {
        tracing::info!(file = ?path, "replaced the authorities of client certificates");
    }
    Ok(Some(bundle))
}
