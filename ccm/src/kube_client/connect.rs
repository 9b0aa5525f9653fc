//! The client for the API server, from a kubeconfig, a service account or `--master`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use http::{HeaderValue, Uri, header};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::Base;

/// The limit for opening a TCP and TLS connection.
const CONNECT: Duration = Duration::from_secs(10);

/// The client for this configuration. It does not send anything yet.
pub(crate) async fn connect(config: &crate::args::Config) -> Result<Base> {
    connect_to(config.kubeconfig.as_deref(), config.master.as_deref()).await
}

/// The same API server without credentials, for callers that add their own.
pub(crate) async fn connect_anonymously(config: &crate::args::Config) -> Result<Base> {
    let (kubeconfig, master) = (config.kubeconfig.as_deref(), config.master.as_deref());
    let mut config = configuration(kubeconfig, master).await?;
    config.auth_info = kube::config::AuthInfo::default();
    base(config, kubeconfig)
}

/// The client for a kubeconfig (its current context), for `master`, for both (`master` then
/// replaces the URL), or for the pod.
pub(crate) async fn connect_to(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Base> {
    base(configuration(kubeconfig, master).await?, kubeconfig)
}

async fn configuration(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<Config> {
    let master = master.filter(|url| !url.is_empty());
    // Without a kubeconfig, nothing says whether the server uses TLS.
    let url = |tls| master.map(|master| parse(master, tls)).transpose();
    let mut config = match (kubeconfig, url(false)?) {
        (Some(path), _) => {
            // The error itself stays out of the chain: its text may contain lines of the file.
            let failed = |error| anyhow!("kubeconfig {}: {}", path.display(), why(&error));
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(failed)?
        }
        (None, Some(url)) => Config::new(url),
        (None, None) => Config::incluster().map_err(|error| {
            anyhow!(
                "no --kubeconfig is given and this is not a pod with a service account: {error}"
            )
        })?,
    };
    if let Some(url) = url(speaks_tls(&config))? {
        config.cluster_url = url;
    }
    Ok(config)
}

/// Whether to use TLS for a server whose URL has no scheme. As in client-go: with a CA, with a
/// client certificate, or if the server's certificate is not verified.
fn speaks_tls(config: &Config) -> bool {
    let auth = &config.auth_info;
    config.root_cert.is_some()
        || config.accept_invalid_certs
        || auth.client_certificate.is_some()
        || auth.client_certificate_data.is_some()
}

fn base(mut config: Config, kubeconfig: Option<&Path>) -> Result<Base> {
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
        Err(error) => {
            let origin = kubeconfig.map_or_else(
                || "without a kubeconfig".to_owned(),
                |path| format!("kubeconfig {}", path.display()),
            );
            bail!("{origin}: no client for {host} can be made: {error}")
        }
    }
}

/// The error without lines of the kubeconfig, which may contain tokens and keys.
fn why(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => format!("cannot be read: {error}"),
        KubeconfigError::Parse(error) => {
            format!("is not a kubeconfig: {}", error.without_snippet())
        }
        other => other.to_string(),
    }
}

fn parse(url: &str, tls: bool) -> Result<Uri> {
    crate::args::server_url(url, tls).with_context(|| {
        format!(
            "--master {url:?} is neither the URL of an API server (https://HOST:PORT) nor HOST:PORT"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b_m5_a_master_without_a_scheme_is_taken_as_client_go_takes_it() {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = |cluster: &str| {
            let path = directory.path().join("config");
            let text = format!(
                "clusters: [{{name: c, cluster: {{server: 'https://h:1'{cluster}}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 users: [{{name: u, user: {{}}}}]\ncurrent-context: c\n"
            );
            std::fs::write(&path, text).unwrap();
            path
        };
        let plain = kubeconfig("");
        for (path, master, expected) in [
            (None, "localhost:8080", "http://localhost:8080/"),
            (None, "10.0.0.7", "http://10.0.0.7/"),
            (None, "[fd00::7]:6443", "http://[fd00::7]:6443/"),
            (None, "h:1/", "http://h:1/"),
            (None, "https://h:1/prefix", "https://h:1/prefix"),
            (Some(&plain), "10.0.0.7:6443", "http://10.0.0.7:6443/"),
            (Some(&plain), "", "https://h:1/"),
        ] {
            let config = configuration(path.map(std::path::PathBuf::as_path), Some(master));
            let url = config.await.unwrap().cluster_url;
            assert_eq!(url.to_string(), expected, "{master}");
        }
        let secure = kubeconfig(", insecure-skip-tls-verify: true");
        for (master, expected) in [
            ("10.0.0.7:6443", "https://10.0.0.7:6443/"),
            ("http://10.0.0.7:6443", "http://10.0.0.7:6443/"),
        ] {
            let config = configuration(Some(&secure), Some(master)).await.unwrap();
            assert_eq!(config.cluster_url.to_string(), expected, "{master}");
        }
        for wrong in [
            "h:1/path", "h:1?q", "ftp://h", "://h", "/path", "a b", ":80",
        ] {
            let Err(error) = configuration(None, Some(wrong)).await else {
                panic!("{wrong} should not do");
            };
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
    }
}
