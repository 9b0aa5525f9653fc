//! Writes Mozilla's root certificates to stdout, as one PEM file: what `make images` puts into the ccm's image.
//!
//! Not the bundle of the machine that builds: an image would then trust whom that machine's owner trusts, and differ from machine to machine. Here
//! Cargo.lock says which they are.

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
