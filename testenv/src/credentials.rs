//! The identities of one control plane: its CA, its tokens, and a kubeconfig for each user.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde_json::json;

use crate::{
    cluster::Site,
    error::{Error, While},
};

/// The address of the Service `kubernetes`: the first of the range.
pub(crate) const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The users that the API server knows, each with a token and a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum User {
    /// In `system:masters`: everything is allowed.
    Admin,
    /// The service account `cloud-controller-manager` in `kube-system`: what RBAC objects give it,
    /// and no more.
    Ccm,
    /// An authenticated user without any rights of its own.
    Nobody,
}

impl User {
    pub(crate) const ALL: [Self; 3] = [Self::Admin, Self::Ccm, Self::Nobody];

    /// The user's name in RBAC and the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Ccm => "system:serviceaccount:kube-system:cloud-controller-manager",
            Self::Nobody => "nobody",
        }
    }

    /// The bearer token. It need not be random: the server is on the loopback, for a test.
    pub fn token(self) -> &'static str {
        match self {
            Self::Admin => "testenv-admin",
            Self::Ccm => "testenv-ccm",
            Self::Nobody => "testenv-nobody",
        }
    }

    fn groups(self) -> &'static str {
        match self {
            Self::Admin => "system:masters",
            Self::Ccm => {
                "system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated"
            }
            Self::Nobody => "system:authenticated",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Admin => "admin.kubeconfig",
            Self::Ccm => "ccm.kubeconfig",
            Self::Nobody => "nobody.kubeconfig",
        }
    }
}

/// A component of a whole cluster, as a user of the API server.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// The account's name in RBAC.
    pub(crate) name: String,
    pub(crate) group: &'static str,
}

impl Account {
    pub(crate) fn component(name: &str) -> Self {
        Self {
            name: format!("system:{name}"),
            group: "system:authenticated",
        }
    }

    /// A kubelet.
    pub(crate) fn node(name: &str) -> Self {
        Self {
            name: format!("system:node:{name}"),
            group: "system:nodes",
        }
    }

    fn token(&self) -> String {
        format!("testenv-{}", self.name.replace(':', "-"))
    }

    /// The account's kubeconfig.
    pub(crate) fn kubeconfig(&self, url: &str, ca: &Path) -> String {
        kubeconfig(&self.name, &self.token(), url, ca)
    }
}

/// The files of the API server and its clients.
#[derive(Debug)]
pub(crate) struct Credentials {
    directory: PathBuf,
    ca_pem: String,
}

impl Credentials {
    /// Writes a CA and its certificates, a key for service account tokens, and the token file. The
    /// serving certificate is for the loopback, the Service `kubernetes` and the API server's
    /// address in a cluster's network. Kubelets accept the client certificate. `more` are accounts
    /// besides the users.
    pub(crate) fn write(directory: &Path, more: &[Account]) -> Result<Self, Error> {
        let mut ca = CertificateParams::new([])?;
        ca.distinguished_name.push(DnType::CommonName, "testenv CA");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

        let service = SERVICE_ADDRESS.to_string();
        let own = Site::gateway().to_string();
        let names = [
            "localhost",
            "127.0.0.1",
            &service,
            &own,
            "kubernetes.default.svc",
        ];
        let names = names.map(str::to_owned);
        let mut serving = CertificateParams::new(names)?;
        serving
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        serving.use_authority_key_identifier_extension = true;
        let serving_key = KeyPair::generate()?;
        let serving = serving.signed_by(&serving_key, &ca)?;

        let mut kubelet = CertificateParams::new([])?;
        let name = &mut kubelet.distinguished_name;
        name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
        name.push(DnType::OrganizationName, "system:masters");
        kubelet.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        kubelet.use_authority_key_identifier_extension = true;
        let kubelet_key = KeyPair::generate()?;
        let kubelet = kubelet.signed_by(&kubelet_key, &ca)?;

        let account_key = KeyPair::generate()?;

        let credentials = Self {
            directory: directory.to_owned(),
            ca_pem: ca.pem(),
        };
        let tokens = User::ALL.map(|user| {
            let (name, token, groups) = (user.name(), user.token(), user.groups());
            format!("{token},{name},{name},\"{groups}\"\n")
        });
        let more = more.iter().map(|account| {
            let (name, token, group) = (&account.name, account.token(), account.group);
            format!("{token},{name},{name},\"{group}\"\n")
        });
        let tokens: String = tokens.iter().cloned().chain(more).collect();
        for (path, text) in [
            (credentials.ca(), &credentials.ca_pem),
            (credentials.serving_certificate(), &serving.pem()),
            (credentials.serving_key(), &serving_key.serialize_pem()),
            (credentials.kubelet_certificate(), &kubelet.pem()),
            (credentials.kubelet_key(), &kubelet_key.serialize_pem()),
            (credentials.account_key(), &account_key.serialize_pem()),
            (
                credentials.account_public_key(),
                &account_key.public_key_pem(),
            ),
            (credentials.tokens(), &tokens),
        ] {
            fs::write(&path, text).while_doing(|| format!("cannot write {}", path.display()))?;
        }
        Ok(credentials)
    }

    /// Writes the kubeconfigs for an API server at `url`.
    pub(crate) fn write_kubeconfigs(&self, url: &str) -> Result<(), Error> {
        for user in User::ALL {
            let text = kubeconfig(user.name(), user.token(), url, &self.ca());
            let path = self.kubeconfig(user);
            fs::write(&path, text).while_doing(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        self.directory.join(user.file())
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    pub(crate) fn serving_certificate(&self) -> PathBuf {
        self.directory.join("serving.crt")
    }

    pub(crate) fn serving_key(&self) -> PathBuf {
        self.directory.join("serving.key")
    }

    /// The API server's client certificate for kubelets.
    pub(crate) fn kubelet_certificate(&self) -> PathBuf {
        self.directory.join("kubelet-client.crt")
    }

    pub(crate) fn kubelet_key(&self) -> PathBuf {
        self.directory.join("kubelet-client.key")
    }

    pub(crate) fn account_key(&self) -> PathBuf {
        self.directory.join("service-account.key")
    }

    pub(crate) fn account_public_key(&self) -> PathBuf {
        self.directory.join("service-account.pub")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.directory.join("tokens.csv")
    }
}

fn kubeconfig(user: &str, token: &str, url: &str, ca: &Path) -> String {
    // JSON is YAML, and every client parses it.
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testenv",
        "contexts": [{ "name": "testenv", "context": { "cluster": "testenv", "user": user } }],
        "clusters": [{ "name": "testenv", "cluster": { "server": url, "certificate-authority": ca } }],
        "users": [{ "name": user, "user": { "token": token } }],
    });
    format!("{text:#}\n")
}
