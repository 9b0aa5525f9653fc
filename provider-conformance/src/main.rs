//! `provider-conformance`: see `provider_conformance`.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    provider_conformance::cli::main().await
}
