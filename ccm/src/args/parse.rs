//! Values of flags: text to types.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::config::BrakeConfig;

/// A duration as Go writes it (`5m0s`, `1h30m`, `100ms`), also with a fraction in its last unit
/// (`1.5h`), or `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let duration: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "expected a duration such as 5s, 1m30s or 100ms".to_owned())?;
    Duration::try_from(duration).map_err(|_| "expected a duration that is not negative".to_owned())
}

/// Parses with the type's own parser. An error says that `what` was expected.
pub(super) fn expecting<T: FromStr>(
    what: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| text.parse().map_err(|_| format!("expected {what}"))
}

/// A boolean in any of the forms that Go takes.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected one of true, false".to_owned()),
    }
}

/// Whether this is the URL of an HTTP server.
pub(super) fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    })
}

/// The URL of an API server, as client-go reads it. A host or `HOST:PORT` alone gets the scheme
/// `https` if `tls`, else `http`. `None` for any other text.
pub(crate) fn server_url(text: &str, tls: bool) -> Option<http::Uri> {
    if is_url(text) {
        return text.parse().ok();
    }
    if text.contains("://") {
        return None;
    }
    let scheme = if tls { "https" } else { "http" };
    let whole = format!("{scheme}://{text}");
    let url: http::Uri = whole.parse().ok().filter(|_| is_url(&whole))?;
    let bare = url.path() == "/" && url.query().is_none();
    bare.then_some(url)
}

/// A number of workers, at least 1.
pub(super) fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("expected a whole number of at least 1".to_owned()),
    }
}

/// `unix:///PATH`: the path of the socket.
pub(super) fn endpoint(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").ok_or_else(|| {
        format!("the endpoint {text:?} must begin with unix:// (the provider serves a Unix socket)")
    })?;
    if !path.starts_with('/') {
        return Err(format!(
            "the socket's path {path:?} must be absolute: unix:///PATH"
        ));
    }
    // `sun_path` holds 108 bytes, the closing zero included.
    if path.len() > 107 {
        return Err(format!(
            "the socket's path is {} bytes long; the system allows 107",
            path.len()
        ));
    }
    Ok(PathBuf::from(path))
}

/// `NAME=unix:///PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProviderFlag {
    pub(super) name: String,
    pub(super) socket: PathBuf,
}

impl FromStr for ProviderFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, endpoint) = text
            .split_once('=')
            .ok_or("expected NAME=unix:///PATH, for example mock=unix:///run/cloud-provider/socket/provider.sock")?;
        let valid_name = !name.is_empty()
            && name.len() <= 47
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !valid_name {
            return Err(format!(
                "the name {name:?} must be 1 to 47 lower-case letters, digits and dashes, without a dash at either end"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            socket: self::endpoint(endpoint)?,
        })
    }
}

/// `window=10m,floor=2,share=10%,hold=15m,min-age=1m`. A part that is left out keeps its default.
pub(super) fn brake(text: &str) -> Result<BrakeConfig, String> {
    let mut brake = BrakeConfig::default();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!(
                "{part:?}: expected key=value with the keys window, floor, share, hold, min-age"
            )
        })?;
        let wrong = |expected: &str| format!("{key}={value}: {expected}");
        match key {
            "window" => brake.window = positive(value).map_err(|error| wrong(&error))?,
            "hold" => brake.hold = positive(value).map_err(|error| wrong(&error))?,
            "min-age" => brake.min_age = positive(value).map_err(|error| wrong(&error))?,
            "floor" => {
                brake.floor = value
                    .parse()
                    .map_err(|_| wrong("expected a whole number"))?;
            }
            "share" => {
                let percent: f64 = value
                    .strip_suffix('%')
                    .and_then(|number| number.parse().ok())
                    .filter(|percent| (0.0..50.0).contains(percent))
                    .ok_or_else(|| wrong("expected a percentage of at least 0% and under 50%"))?;
                brake.share = percent / 100.0;
            }
            _ => {
                return Err(format!(
                    "{key:?} is no key; known are window, floor, share, hold, min-age"
                ));
            }
        }
    }
    Ok(brake)
}

/// A duration above zero.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|duration| {
        if duration.is_zero() {
            Err("expected more than 0s".to_owned())
        } else {
            Ok(duration)
        }
    })
}
