//! The TLS side of client certificates. Within limits, the handshake accepts each certificate whose
//! key the caller holds.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::Authorities;

/// The most intermediate certificates in a client's chain. The time to verify a chain grows with
/// the number of its paths.
const INTERMEDIATES: usize = 4;
const CHAIN_BYTES: usize = 16 * 1024;

/// Requests a client certificate if the port has authorities for one. The port decides later, for
/// each request, whether an authority signed it. So a certificate of another authority does not
/// exclude a caller with a valid token.
pub(in crate::serve) struct AnyCertificate {
    authorities: Authorities,
    algorithms: WebPkiSupportedAlgorithms,
}

impl std::fmt::Debug for AnyCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnyCertificate")
    }
}

impl AnyCertificate {
    pub(in crate::serve) fn new(authorities: Authorities) -> Self {
        let provider = rustls::crypto::ring::default_provider();
        Self {
            authorities,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn offer_client_auth(&self) -> bool {
        let trust = self.authorities.trust();
        trust.clients.is_some() || trust.proxies.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let bytes = intermediates.iter().map(|der| der.len()).sum::<usize>() + certificate.len();
        if intermediates.len() > INTERMEDIATES || bytes > CHAIN_BYTES {
            return Err(rustls::Error::General(format!(
                "the client shows {} intermediate certificates and {bytes} bytes; at most {INTERMEDIATES} and {CHAIN_BYTES} are taken",
                intermediates.len()
            )));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
