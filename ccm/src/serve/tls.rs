//! TLS of the ports: the certificate for each server name. It comes from files, whose changes are
//! followed. Without files it is self-signed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{NamedGroup, ServerConfig, SupportedCipherSuite};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::authorities::{AnyCertificate, Authorities};
use super::user::server_names;
use crate::args::{TlsConfig, TlsFiles, TlsVersion};

/// The base name of the self-signed certificate's files in `--cert-dir`, as upstream names them.
const PAIR_NAME: &str = "cloud-controller-manager";

/// The flags of a certificate and of its key. Each error about a file names the flag to change.
type Flags = [String; 2];

/// One flag names both files.
fn both(flag: &str) -> Flags {
    [flag, flag].map(str::to_owned)
}

pub(super) struct Source {
    flags: Flags,
    files: TlsFiles,
    /// The names that it serves; if empty, those in the certificate. `None`: all names without a
    /// certificate of their own.
    names: Option<Vec<String>>,
    pem: Pem,
    key: Arc<CertifiedKey>,
}

/// The contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Pem {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pem {
    async fn read(flags: &Flags, files: &TlsFiles) -> Result<Self> {
        Ok(Self {
            certificate: read(&flags[0], &files.certificate).await?,
            key: read(&flags[1], &files.private_key).await?,
        })
    }

    fn certified(
        &self,
        [certificate_flag, key_flag]: &Flags,
        files: &TlsFiles,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>> {
        let certificate = files.certificate.to_string_lossy();
        let private_key = files.private_key.to_string_lossy();
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(anyhow::Error::from)
            .and_then(|chain| {
                ensure!(!chain.is_empty(), "no CERTIFICATE section");
                Ok(chain)
            })
            .with_context(|| {
                format!("{certificate_flag}: {certificate:?} holds no PEM certificate")
            })?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .with_context(|| format!("{key_flag}: {private_key:?} holds no PEM private key"))?;
        CertifiedKey::from_der(chain, key, provider)
            .map(Arc::new)
            .with_context(|| {
                format!("{certificate_flag} {certificate:?} and {key_flag} {private_key:?} cannot be used together")
            })
    }
}

impl Source {
    async fn open(
        flags: Flags,
        files: &TlsFiles,
        names: Option<Vec<String>>,
        provider: &CryptoProvider,
    ) -> Result<Self> {
        let pem = Pem::read(&flags, files).await?;
        Ok(Self {
            key: pem.certified(&flags, files, provider)?,
            flags,
            files: files.clone(),
            names,
            pem,
        })
    }

    /// Reads the files again and installs their contents if they are new and usable. Returns
    /// whether it did.
    async fn again(&mut self, provider: &CryptoProvider) -> Result<bool> {
        let pem = Pem::read(&self.flags, &self.files).await?;
        if pem == self.pem {
            return Ok(false);
        }
        self.key = pem.certified(&self.flags, &self.files, provider)?;
        self.pem = pem;
        let file = &self.files.certificate;
        let [flag, _] = &self.flags;
        tracing::info!(flag, ?file, "replaced a certificate: the file has changed");
        Ok(true)
    }
}

/// Reads a file that a flag names.
pub(super) async fn read(flag: &str, path: &Path) -> Result<Vec<u8>> {
    let read = tokio::fs::read(path).await;
    read.with_context(|| format!("{flag}: cannot read {:?}", path.to_string_lossy()))
}

/// The certificate for each name.
#[derive(Debug, Default)]
struct Table {
    default: Option<Arc<CertifiedKey>>,
    /// By name or pattern.
    names: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Table {
    fn of(sources: &[Source], made: Option<&Arc<CertifiedKey>>) -> Self {
        let mut table = Self {
            default: made.cloned(),
            ..Self::default()
        };
        let mut implied = Vec::new();
        for Source { names, key, .. } in sources {
            match names {
                None => table.default = Some(Arc::clone(key)),
                // Configured names count more than those in the certificate, and earlier files more
                // than later ones.
                Some(names) if names.is_empty() => implied.push(key),
                Some(names) => table.insert(names, key),
            }
        }
        for key in implied {
            let names = key.cert.first().map(server_names).unwrap_or_default();
            table.insert(&names, key);
        }
        table
    }

    fn insert(&mut self, names: &[String], key: &Arc<CertifiedKey>) {
        for name in names {
            let known = self.names.entry(name.clone());
            known.or_insert_with(|| Arc::clone(key));
        }
    }

    /// The certificate for a name: for the name itself, else for the pattern with the fewest `*`.
    /// Each `*` stands for a whole label at the front.
    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        if let Some(name) = name {
            if let Some(key) = self.names.get(&name) {
                return Some(Arc::clone(key));
            }
            let mut labels: Vec<&str> = name.split('.').collect();
            for index in 0..labels.len() {
                labels[index] = "*";
                if let Some(key) = self.names.get(&labels.join(".")) {
                    return Some(Arc::clone(key));
                }
            }
        }
        self.default.clone()
    }
}

/// The current certificates.
#[derive(Debug)]
struct Keys(RwLock<Table>);

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.find(hello.server_name())
    }
}

/// The TLS settings of a port.
pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    keys: Arc<Keys>,
    sources: Vec<Source>,
    made: Option<Arc<CertifiedKey>>,
    provider: Arc<CryptoProvider>,
}

impl Tls {
    /// Reads or makes the certificates. The names of the port's flags begin with `prefix`.
    pub(super) async fn open(
        config: &TlsConfig,
        prefix: &str,
        authorities: Authorities,
    ) -> Result<Self> {
        let provider = provider(config);
        let mut sources = Vec::new();
        let mut made = None;
        let hostname = gethostname::gethostname();
        if let Some(files) = &config.files {
            let flags = ["cert-file", "private-key-file"];
            let flags = flags.map(|name| format!("--{prefix}tls-{name}"));
            sources.push(Source::open(flags, files, None, &provider).await?);
        } else if let Some(directory) = &config.directory {
            let files = kept(directory, &hostname.to_string_lossy())?;
            sources.push(Source::open(both("--cert-dir"), &files, None, &provider).await?);
        } else {
            let (certificate, key) = self_made(&hostname.to_string_lossy())?;
            let files = TlsFiles {
                certificate: PathBuf::new(),
                private_key: PathBuf::new(),
            };
            let pem = Pem {
                certificate: certificate.into_bytes(),
                key: key.into_bytes(),
            };
            made = Some(pem.certified(&both("self-made"), &files, &provider)?);
        }
        let sni = both(&format!("--{prefix}tls-sni-cert-key"));
        for pair in &config.sni {
            let names = Some(pair.names.clone());
            sources.push(Source::open(sni.clone(), &pair.files, names, &provider).await?);
        }
        let table = Table::of(&sources, made.as_ref());
        let keys = Arc::new(Keys(RwLock::new(table)));
        let versions: &[_] = match config.min_version {
            TlsVersion::V12 => rustls::ALL_VERSIONS,
            TlsVersion::V13 => &[&rustls::version::TLS13],
        };
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .with_context(|| {
                format!("--{prefix}tls-min-version, --{prefix}tls-cipher-suites and --{prefix}tls-curve-preferences leave no common protocol")
            })?
            .with_client_cert_verifier(Arc::new(AnyCertificate::new(authorities)))
            .with_cert_resolver(Arc::clone(&keys) as Arc<dyn ResolvesServerCert>);
        // A resumed session would not show a new certificate, and saves little on this port.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        // HTTP/2 adds ways to flood the port, for little use with metrics and health.
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            keys,
            sources,
            made,
            provider,
        })
    }

    /// The self-signed certificate, if it is in memory only.
    pub(super) fn made(&self) -> Option<&CertificateDer<'static>> {
        self.made.as_ref()?.cert.first()
    }

    /// Reads the files again every `period` and serves new contents. It compares contents, not
    /// times, because a mounted Secret is swapped by a link. Unusable contents (such as only one
    /// new file of two) leave the old certificate in place, and do not affect others.
    pub(super) async fn renew(mut self, period: Duration) -> Infallible {
        let mut reported = String::new();
        loop {
            tokio::time::sleep(period).await;
            let (mut news, mut trouble) = (false, Vec::new());
            for source in &mut self.sources {
                match source.again(&self.provider).await {
                    Ok(new) => news |= new,
                    Err(error) => trouble.push(format!("{error:#}")),
                }
            }
            if news {
                let table = Table::of(&self.sources, self.made.as_ref());
                *self.keys.0.write().unwrap_or_else(PoisonError::into_inner) = table;
            }
            let error = trouble.join("; ");
            if reported != error && !error.is_empty() {
                tracing::warn!(error, "keeping the old certificate of an HTTPS port");
            }
            reported = error;
        }
    }
}

/// ring, with the configured suites and groups.
fn provider(config: &TlsConfig) -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    if let Some(asked) = &config.cipher_suites {
        provider.cipher_suites.retain(|suite| match suite {
            SupportedCipherSuite::Tls13(_) => true,
            SupportedCipherSuite::Tls12(_) => {
                let name = suite.suite().as_str();
                name.is_some_and(|name| asked.contains(name))
            }
        });
    }
    if let Some(asked) = &config.curves {
        let asks = |group: NamedGroup| asked.contains(&u16::from(group));
        provider.kx_groups.retain(|group| asks(group.name()));
    }
    Arc::new(provider)
}

/// A certificate and its key as PEM, for localhost, 127.0.0.1 and this host's name.
pub(super) fn self_made(hostname: &str) -> Result<(String, String)> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    // A hostname may contain characters that no certificate can hold.
    if !hostname.is_empty() && hostname.is_ascii() && !names.iter().any(|name| name == hostname) {
        names.push(hostname.to_owned());
    }
    let made = rcgen::generate_simple_self_signed(names).context("no certificate could be made")?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// The pair in `--cert-dir`, which is created if there is none. Both files are written beside their
/// places first. So if there is a key and a `.crt.new`, but no `.crt`, a process died before it was
/// done.
fn kept(directory: &Path, hostname: &str) -> Result<TlsFiles> {
    let files = TlsFiles {
        certificate: directory.join(format!("{PAIR_NAME}.crt")),
        private_key: directory.join(format!("{PAIR_NAME}.key")),
    };
    let new = |path: &Path| path.with_added_extension("new");
    let is_there = |path: &Path| {
        let failed = || format!("--cert-dir: cannot read {:?}", path.to_string_lossy());
        path.try_exists().with_context(failed)
    };
    if is_there(&files.certificate)?
        || is_there(&files.private_key)? && !is_there(&new(&files.certificate))?
    {
        return Ok(files);
    }
    let (certificate, key) = self_made(hostname)?;
    let failed = |path: &Path| format!("--cert-dir: cannot write {:?}", path.to_string_lossy());
    let write = |path: &Path, mode: u32, text: &str| {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let written = options.open(new(path)).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.with_context(|| failed(path))
    };
    std::fs::create_dir_all(directory).with_context(|| failed(directory))?;
    write(&files.certificate, 0o644, &certificate)?;
    write(&files.private_key, 0o600, &key)?;
    for path in [&files.private_key, &files.certificate] {
        std::fs::rename(new(path), path).with_context(|| failed(path))?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certified(name: &str) -> Arc<CertifiedKey> {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = rustls::crypto::ring::default_provider();
        Arc::new(CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider).unwrap())
    }

    #[tokio::test]
    async fn b_m4_a_death_between_key_and_certificate_stops_no_later_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = |end: &str| directory.path().join(format!("{PAIR_NAME}.{end}"));
        let provider = rustls::crypto::ring::default_provider();
        // What deaths at different times leave.
        std::fs::write(path("key"), "half a k").unwrap();
        std::fs::write(path("crt.new"), "half a c").unwrap();
        let files = kept(directory.path(), "host").unwrap();
        let source = Source::open(both("--cert-dir"), &files, None, &provider);
        let first = source.await.unwrap().pem.certificate;
        let mut names: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        assert_eq!(names, [path("crt"), path("key")]);
        // The next start takes the same pair.
        let files = kept(directory.path(), "host").unwrap();
        assert_eq!(std::fs::read(files.certificate).unwrap(), first);
    }

    #[test]
    fn b_m4_a_certificate_is_found_by_name_then_by_pattern_then_the_default() {
        let [default, exact, one, two] = ["d", "e", "o", "t"].map(certified);
        let mut table = Table {
            default: Some(Arc::clone(&default)),
            ..Table::default()
        };
        table.insert(&["a.example.com".to_owned()], &exact);
        table.insert(&["*.example.com".to_owned()], &one);
        table.insert(&["*.*.example.com".to_owned()], &two);
        // The first certificate for a name stays.
        table.insert(&["*.example.com".to_owned()], &default);
        for (name, expected) in [
            (Some("a.example.com"), &exact),
            (Some("A.Example.com."), &exact),
            (Some("b.example.com"), &one),
            (Some("c.b.example.com"), &two),
            (Some("example.com"), &default),
            (Some(""), &default),
            (None, &default),
        ] {
            assert!(
                Arc::ptr_eq(&table.find(name).unwrap(), expected),
                "{name:?}"
            );
        }
    }
}
