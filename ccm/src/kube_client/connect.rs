//! The client to the API server, from kubeconfig, service account or `--master`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderValue, Uri, header};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::Base;

/// How long a TCP and TLS connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {}: {}", .path.display(), why(.source))]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Box<KubeconfigError>,
    },
    /// `--master` is no URL.
    #[error("--master {url:?} is not the URL of an API server (https://HOST:PORT): {reason}")]
    Master {
        /// As given.
        url: String,
        /// Why.
        reason: String,
    },
    /// No kubeconfig, and no service account either.
    #[error("no --kubeconfig is given and this is not a pod with a service account: {0}")]
    InCluster(InClusterError),
    /// Certificates or credentials cannot be used.
    #[error("{origin}: no client for {host} can be made: {source}")]
    Client {
        /// Where they come from.
        origin: String,
        /// The API server.
        host: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// The client that the configuration asks for. Nothing is sent yet.
pub(crate) async fn connect(config: &crate::args::Config) -> Result<Base, ConnectError> {
    connect_to(config.kubeconfig.as_deref(), config.master.as_deref()).await
}

/// The same API server without any credentials: for who brings their own.
pub(crate) async fn connect_anonymously(
    config: &crate::args::Config,
) -> Result<Base, ConnectError> {
    let (kubeconfig, master) = (config.kubeconfig.as_deref(), config.master.as_deref());
    let mut config = configuration(kubeconfig, master).await?;
    config.auth_info = kube::config::AuthInfo::default();
    base(config, kubeconfig)
}

/// The client of a kubeconfig (its current context), of `master`, of both (`master` is then the URL), or of the pod.
pub(crate) async fn connect_to(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
) -> Result<Base, ConnectError> {
    base(configuration(kubeconfig, master).await?, kubeconfig)
}

async fn configuration(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
) -> Result<Config, ConnectError> {
    let master = master
        .filter(|url| !url.is_empty())
        .map(parse)
        .transpose()?;
    let mut config = match (kubeconfig, &master) {
        (Some(path), _) => {
            let failed = |source| ConnectError::Kubeconfig {
                path: path.to_owned(),
                source: Box::new(source),
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(failed)?
        }
        (None, Some(url)) => Config::new(url.clone()),
        (None, None) => Config::incluster().map_err(ConnectError::InCluster)?,
    };
    if let Some(url) = master {
        config.cluster_url = url;
    }
    Ok(config)
}

fn base(mut config: Config, kubeconfig: Option<&Path>) -> Result<Base, ConnectError> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.headers.push((
        header::USER_AGENT,
        HeaderValue::from_static(concat!("ccm/", env!("CARGO_PKG_VERSION"))),
    ));
    let host = config
        .cluster_url
        .authority()
        .map(|authority| authority.as_str().to_owned())
        .unwrap_or_default();
    match Client::try_from(config) {
        Ok(client) => Ok(Base { client, host }),
        Err(source) => Err(ConnectError::Client {
            origin: kubeconfig.map_or_else(
                || "without a kubeconfig".to_owned(),
                |path| format!("kubeconfig {}", path.display()),
            ),
            host,
            source: Box::new(source),
        }),
    }
}

/// What is wrong with a kubeconfig, without quoting its lines: they hold tokens and keys.
fn why(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => format!("cannot be read: {error}"),
        KubeconfigError::Parse(error) => {
            format!("is not a kubeconfig: {}", error.without_snippet())
        }
        other => other.to_string(),
    }
}

fn parse(url: &str) -> Result<Uri, ConnectError> {
    let failed = |reason: String| ConnectError::Master {
        url: url.to_owned(),
        reason,
    };
    let parsed: Uri = url
        .parse()
        .map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    match parsed.scheme_str() {
        Some("http" | "https") if parsed.host().is_some_and(|host| !host.is_empty()) => Ok(parsed),
        _ => Err(failed("scheme or host is missing".to_owned())),
    }
}
