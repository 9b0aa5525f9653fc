//! `provider-mock`: see the library.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    provider_mock::ctl::main().await
}
