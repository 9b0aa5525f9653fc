//! Writes Mozilla's root certificates to stdout, as one PEM file. `make images` puts it into the
//! images of the ccm and of the providers for clouds.
//!
//! The bundle of the machine that builds would not do: an image would then trust the authorities
//! that the machine's owner trusts, and differ from machine to machine. Cargo.lock pins these
//! certificates.

use std::io::Write;

use pem::{EncodeConfig, LineEnding, Pem};

fn main() -> std::io::Result<()> {
    let certificates: Vec<Pem> = webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|certificate| Pem::new("CERTIFICATE", certificate.as_ref()))
        .collect();
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    std::io::stdout().write_all(pem::encode_many_config(&certificates, lines).as_bytes())
}
