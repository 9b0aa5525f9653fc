//! `provider-conformance`: see `provider_sdk::conformance`.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    provider_sdk::conformance::cli::main().await
}
