//! Certificates of a stranger, and headers of a caller that claims to be a front proxy.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, PKCS_ED25519,
};
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::{PrivatePkcs8KeyDer, UnixTime};

use super::{
    AnyCertificate, Arc, AtomicBool, AuthenticationConfig, Authorities, Bundle, CertificateDer,
    Inner, RequestHeaderConfig, RwLock, Semaphore, Trust, User, Verdict, common_name,
};
use crate::serve::user::server_names;

const USER: &str = "alice";
const PROXY: &str = "front-proxy";
/// The limit for judging one chain. The worst chain takes milliseconds, but the machine may be
/// busy.
const BUDGET: Duration = Duration::from_secs(10);

/// The trusted authorities, certificates that they signed, and some that no trusted authority
/// signed.
struct World {
    trust: Trust,
    port: AnyCertificate,
    users: Vec<CertificateDer<'static>>,
    proxies: Vec<CertificateDer<'static>>,
    /// Chains for the seeds.
    chains: Vec<Vec<CertificateDer<'static>>>,
}

static WORLD: LazyLock<World> = LazyLock::new(World::new);

/// The same key each time, so that an input keeps its meaning.
fn key(seed: u8) -> KeyPair {
    // The PKCS#8 header of an Ed25519 key, before its 32 bytes.
    let mut der = vec![
        0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    der.extend([seed; 32]);
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
        .expect("a key")
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![format!("{name}.example")]).expect("a name");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(vec![1, 2, 3].into());
    params
}

fn authority(name: &str, seed: u8) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key(seed)).expect("an authority")
}

fn client(name: &str, by: &CertifiedIssuer<'static, KeyPair>) -> CertificateDer<'static> {
    let mut params = params(name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
        .distinguished_name
        .push(DnType::OrganizationName, "ops");
    let signed = params.signed_by(&key(9), by).expect("a certificate");
    signed.der().clone()
}

impl World {
    fn new() -> Self {
        let [clients, proxies, others] = [("clients", 1), ("proxies", 2), ("others", 3)]
            .map(|(name, seed)| authority(name, seed));
        let mut between = params("between");
        between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let between = CertifiedIssuer::signed_by(between, key(4), &clients).expect("an authority");
        let users = vec![client(USER, &clients), client(USER, &between)];
        let proxy = client(PROXY, &proxies);
        let stranger = client("system:masters", &others);
        let middle = between.der().clone();
        let bundle = |authority: &CertifiedIssuer<'static, KeyPair>| {
            Bundle::of(authority.pem().as_bytes()).expect("a bundle")
        };
        let headers = RequestHeaderConfig {
            client_ca_file: None,
            allowed_names: vec![PROXY.to_owned()],
            ..config()
        };
        let trust = Trust {
            clients: Some(bundle(&clients)),
            proxies: Some((bundle(&proxies), headers)),
            generation: 1,
        };
        let authorities = Authorities(Arc::new(Inner {
            config: AuthenticationConfig::default(),
            client_flag: "--client-ca-file".to_owned(),
            trust: RwLock::new(Arc::new(trust.clone())),
            looked_up: AtomicBool::new(true),
            building: Arc::new(Semaphore::new(1)),
        }));
        let others = others.der().clone();
        Self {
            chains: vec![
                vec![users[0].clone()],
                vec![users[1].clone(), middle.clone()],
                vec![users[1].clone()],
                vec![proxy.clone()],
                vec![stranger.clone(), others.clone()],
                vec![stranger, others, middle.clone(), middle.clone(), middle],
            ],
            trust,
            port: AnyCertificate::new(authorities),
            users,
            proxies: vec![proxy],
        }
    }
}

/// The headers that a front proxy uses.
fn config() -> RequestHeaderConfig {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    RequestHeaderConfig {
        client_ca_file: None,
        allowed_names: Vec::new(),
        username_headers: names(&["x-remote-user", "x-user"]),
        uid_headers: names(&["x-remote-uid"]),
        group_headers: names(&["x-remote-group"]),
        extra_header_prefixes: names(&["x-remote-extra-"]),
    }
}

/// Splits the input into certificates, each preceded by its length. Does not parse them.
fn chain(mut input: &[u8]) -> Vec<CertificateDer<'static>> {
    let mut chain = Vec::new();
    while let [high, low, rest @ ..] = input {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (der, after) = rest.split_at(length);
        chain.push(CertificateDer::from(der.to_vec()));
        input = after;
    }
    chain
}

/// Judges one chain that a caller shows after its handshake. It must be quick, and only a
/// certificate that an authority signed may name a user.
pub(crate) fn certificates(input: &[u8]) {
    let chain = chain(input);
    let Some((first, between)) = chain.split_first() else {
        return;
    };
    let world = &*WORLD;
    if world
        .port
        .verify_client_cert(first, between, UnixTime::now())
        .is_err()
    {
        return;
    }
    assert!(between.len() <= 4 && chain.iter().map(|der| der.len()).sum::<usize>() <= 16 * 1024);
    let began = Instant::now();
    let verdict = Verdict::of(&chain, &world.trust);
    assert!(began.elapsed() < BUDGET, "{:?}", began.elapsed());
    if let Some(user) = verdict.user {
        assert!(world.users.contains(first), "nobody signed {user:?}");
        assert_eq!(user.name, USER);
    }
    assert!(verdict.proxy.is_none() || world.proxies.contains(first));
    // Here these parse certificates that nobody verified.
    let _ = (
        server_names(first),
        common_name(first),
        User::of_certificate(first),
    );
}

pub(crate) fn certificate_seeds() -> Vec<Vec<u8>> {
    let written = |der: &CertificateDer<'_>| {
        let length = u16::try_from(der.len()).unwrap_or(u16::MAX).to_be_bytes();
        [&length[..], &der[..]].concat()
    };
    let chains = WORLD.chains.iter();
    chains
        .map(|chain| chain.iter().flat_map(written).collect())
        .collect()
}

/// The headers of a front proxy, one on each line.
pub(crate) fn headers(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (name, value) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let config = config();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let named = text("x-remote-user").filter(|name| !name.is_empty());
    let named = named.or_else(|| text("x-user").filter(|name| !name.is_empty()));
    let found = User::of_headers(&headers, &config);
    assert_eq!(found.as_ref().map(|user| user.name.as_str()), named);
    if let Some(user) = found {
        let groups = headers.get_all("x-remote-group").iter().count();
        assert!(user.groups.len() <= groups && !user.groups.contains(&String::new()));
        let authenticated = user.clone().authenticated().groups.len();
        assert!(authenticated <= user.groups.len() + 1);
    }
}

pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    [
        "x-remote-user:bob\nx-remote-group:a\nx-remote-group:b\nx-remote-uid:7",
        "x-remote-user:\nx-user:eve\nx-remote-extra-example.com%2fkey:v",
        "x-remote-extra-%ff%:v\nx-remote-user:system:anonymous\nx-remote-group:system:masters",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
