//! Fuzzes the parsers of flags, the configuration file, selectors and Nodes' addresses. The ccm
//! accepts or refuses any text, and an accepted value is within its bounds.

use std::sync::LazyLock;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;

use super::parse::ProviderFlag;
use super::{Args, command, file, parse, speech};
use crate::controllers::service;
use crate::provider;

/// One text. The first byte selects its parser.
pub(crate) fn parsers(input: &[u8]) {
    let Some((&which, text)) = input.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match which % 7 {
        0 => brake(text),
        1 => sni(text),
        2 => provider_flag(text),
        3 => config(text),
        4 => service::fuzz::selector(text),
        5 => provider::fuzz::address(&api::NodeAddress {
            r#type: i32::from(which / 7),
            address: text.to_owned(),
        }),
        _ => line(text),
    }
}

fn brake(text: &str) {
    match parse::brake(text) {
        Err(error) => assert!(!error.is_empty()),
        Ok(brake) => {
            assert!((0.0..0.5).contains(&brake.share), "{text:?}: {brake:?}");
            for time in [brake.window, brake.hold, brake.min_age] {
                assert!(time > Duration::ZERO, "{text:?}: {brake:?}");
            }
        }
    }
}

fn sni(text: &str) {
    if let Some(pair) = speech::sni_files(text) {
        for path in [&pair.files.certificate, &pair.files.private_key] {
            let path = path.to_string_lossy();
            assert!(!path.is_empty() && path.trim() == path, "{text:?}");
        }
        for name in &pair.names {
            assert!(!name.is_empty() && !name.contains(','), "{text:?}");
        }
    }
}

fn provider_flag(text: &str) {
    if let Ok(flag) = text.parse::<ProviderFlag>() {
        assert!((1..=47).contains(&flag.name.len()), "{text:?}");
        assert!(flag.socket.is_absolute() && flag.socket.as_os_str().len() <= 107);
    }
    if let Some(url) = parse::server_url(text, true) {
        assert!(url.host().is_some_and(|host| !host.is_empty()), "{text:?}");
    }
}

fn config(text: &str) {
    static COMMAND: LazyLock<clap::Command> = LazyLock::new(command);
    match file::parse(text, "FILE", &COMMAND) {
        Ok(entries) => {
            for entry in entries {
                assert!(entry.arguments.iter().all(|it| it.starts_with("--")));
                assert!(entry.place.starts_with("FILE:"));
            }
        }
        Err(faults) => {
            for fault in faults {
                assert!(fault.to_string().starts_with("FILE"), "{fault}");
            }
        }
    }
}

/// A whole command line, one flag a line.
fn line(text: &str) {
    let flags = std::iter::once("ccm").chain(text.lines());
    // Leaves out flags that read a file, and others with `config` in their names.
    let flags = flags.filter(|flag| !flag.contains("config"));
    let Ok(args) = Args::parse_from_command_line(flags) else {
        return;
    };
    let _ = (args.notices(), args.version());
    match args.into_config() {
        Ok(config) => {
            let election = &config.leader_election;
            assert!(election.lease_duration > election.renew_deadline);
            assert!(!config.controllers.is_empty() && config.providers.len() == 1);
        }
        Err(wrong) => assert!(wrong.iter().all(|it| it.flag.starts_with("--"))),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        (0, "window=10m,floor=2,share=10%,hold=15m,min-age=1m"),
        (0, "share=50%"),
        (0, "window=0s,hold=-1s"),
        (1, "a.crt,a.key:one.example,*.two.example"),
        (2, "mock=unix:///run/cloud-provider/socket/provider.sock"),
        (2, "a-name-of-more-than-forty-seven-letters-and-dashes=unix:///a.sock"),
        (2, "https://api.example:6443/path?query"),
        (3, "provider: aws=unix:///a.sock\ncontrollers: ['*', -route]\nnode-deletion-brake: {floor: 5, share: 20%}\nv: 4\n"),
        (3, "leader-elect: [\n"),
        (4, "zone=a,!spot,tier in (x,y),b!=c,d notin (e)"),
        (5, "192.0.2.1"),
        (19, "fd00::1"),
        (12, "node-1.example"),
        (6, "--provider=mock=unix:///a.sock\n--leader-elect-lease-duration=30s\n--cluster-cidr=10.0.0.0/8,fd00::/48\n--service-cluster-ip-range=10.96.0.0/12"),
        (6, "--controllers=*,-service\n--tls-sni-cert-key=a,b:c\n--tls-cipher-suites=TLS_AES_128_GCM_SHA256\n--feature-gates=A=true"),
    ]
    .map(|(which, text): (u8, &str)| [&[which], text.as_bytes()].concat())
    .into()
}
