//! Flags, files and sockets that are wrong, and the HTTPS port.

use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};

/// Status and text of a path of the HTTPS port; 0 where nobody answers.
pub async fn get(port: u16, path: &str, token: Option<&str>) -> (u16, String) {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let mut request = http::Request::get(path);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    match client.send(request.body(Body::empty()).unwrap()).await {
        Err(error) => (0, error.to_string()),
        Ok(answer) => {
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }
    }
}
