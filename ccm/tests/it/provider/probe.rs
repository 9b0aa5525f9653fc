//! `ccm probe`, as the kubelet runs it: it prints one line with the reason, exits with 0 or 1, and
//! keeps to its timeout.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use provider_mock::{Fault, Fixture, Mock};
use provider_sdk::Health;
use testenv::program;

use crate::process::Provider;
use crate::world::{CCM, SOON};

fn command(program: &Path, socket: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(program);
    let endpoint = format!("unix://{}", socket.display());
    command.args(["probe", "--endpoint", &endpoint]).args(flags);
    command
}

fn code_and_line(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let line = text.strip_suffix('\n').expect("a line");
    assert!(!line.contains('\n'), "one line: {text}");
    (output.status.code().unwrap(), line.to_owned())
}

/// Runs `ccm probe` on this socket.
async fn probe(socket: &Path, flags: &[&str]) -> (i32, String) {
    let mut command = command(Path::new(CCM), socket, flags);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    code_and_line(&output.await.unwrap())
}

#[tokio::test]
async fn a_provider_lives_whatever_it_says_and_is_ready_where_controllers_work() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s/provider.sock");
    let mock = Mock::start(Fixture::default(), &socket, None)
        .await
        .unwrap();
    let flags = ["--timeout=30s"];
    let ready = ["--timeout=30s", "--ready"];
    for (health, state, works) in [
        (Health::ready(), "READY", true),
        (Health::degraded("quota\nlow"), "DEGRADED (quota low)", true),
        (Health::starting("warming"), "STARTING (warming)", false),
        (Health::broken("no key"), "BROKEN (no key)", false),
    ] {
        mock.cloud().set_health(health);
        assert_eq!(
            probe(&socket, &flags).await,
            (0, format!("live: the provider says {state}"))
        );
        let (code, word) = if works { (0, "") } else { (1, "not ") };
        assert_eq!(
            probe(&socket, &ready).await,
            (code, format!("{word}ready: the provider says {state}"))
        );
    }
    // The provider is alive although its cloud is down.
    mock.cloud().set_health(Health::ready());
    mock.cloud().set_weather(provider_mock::Weather {
        fail: Some(provider_sdk::FailureCode::Unavailable),
        ..Default::default()
    });
    for flags in [&flags[..], &ready] {
        let (code, line) = probe(&socket, flags).await;
        assert_eq!(code, 0, "{line}");
        assert!(line.contains("DEGRADED"), "{line}");
    }
    // The command calls only Probe, and needs no Initialize.
    let asked: Vec<_> = mock.cloud().call_counts().into_keys().collect();
    assert_eq!(asked, ["Probe"]);
}

#[tokio::test]
async fn a_status_is_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s/provider.sock");
    let mock = Mock::start(Fixture::default(), &socket, None)
        .await
        .unwrap();
    let fault = Fault::status("Probe", tonic::Code::Unknown);
    mock.cloud().set_fault(fault).unwrap();
    let (code, line) = probe(&socket, &["--timeout=30s"]).await;
    assert_eq!(code, 1);
    let said = "not live: Probe was answered with the gRPC status Unknown";
    assert!(line.starts_with(said), "{line}");
}

#[tokio::test]
async fn a_process_that_hangs_fails_the_probe_in_time_and_passes_it_when_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut provider = Provider::start(directory.path()).await;
    let socket = directory.path().join("own/provider.sock");
    assert_eq!(probe(&socket, &["--timeout=30s"]).await.0, 0);
    provider.process().suspend();
    let began = Instant::now();
    let (code, line) = probe(&socket, &["--timeout=300ms"]).await;
    assert_eq!(
        (code, &*line),
        (
            1,
            &*format!(
                "not live: no answer from {} within 300ms: the provider hangs, or has too little CPU",
                socket.display()
            )
        )
    );
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    provider.process().resume();
    assert_eq!(probe(&socket, &["--timeout=30s"]).await.0, 0);
    // A killed provider leaves the file of its socket.
    provider.process().kill();
    let (code, line) = probe(&socket, &["--ready"]).await;
    assert_eq!(code, 1);
    assert!(
        line.starts_with("not ready: no process listens on"),
        "{line}"
    );
}

#[tokio::test]
async fn what_is_no_provider_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (code, line) = probe(&at("missing"), &[]).await;
    assert_eq!(code, 1);
    assert!(line.contains("it does not exist yet"), "{line}");

    std::fs::write(at("file"), "").unwrap();
    let (code, line) = probe(&at("file"), &[]).await;
    assert_eq!(code, 1);
    assert!(line.contains("no process listens on"), "{line}");

    for (name, garbage) in [("http", "HTTP/1.1 400 Bad Request\r\n\r\n"), ("closed", "")] {
        let listener = UnixListener::bind(at(name)).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(garbage.as_bytes()).unwrap();
        });
        let (code, line) = probe(&at(name), &["--timeout=30s"]).await;
        assert_eq!(code, 1, "{line}");
        let said = format!(
            "not live: what listens on {} did not answer as a provider (",
            at(name).display()
        );
        assert!(line.starts_with(&said), "{line}");
        answering.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_connect_is_told_how_he_could_needs_root() {
    const NOBODY: u32 = 65534;
    if !std::fs::read_dir("/proc/1/fd").is_ok_and(|mut it| it.next().is_some()) {
        writeln!(std::io::stderr(), "SKIPPED, not root").unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody.clone()).unwrap();
    std::fs::create_dir(directory.path().join("s")).unwrap();
    std::fs::set_permissions(directory.path().join("s"), everybody).unwrap();
    let socket = directory.path().join("s/provider.sock");
    let _mock = Mock::start(Fixture::default(), &socket, None)
        .await
        .unwrap();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let program = directory.path().join("ccm");
    program::copied(CCM.as_ref(), &program);
    // The socket refuses another user, but admits another user of its group. The two containers of
    // a Pod have one group.
    for (gid, expected) in [(NOBODY, 1), (0, 0)] {
        let mut command = command(&program, &socket, &["--timeout=30s"]);
        command.uid(NOBODY).gid(gid).current_dir("/");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let (code, line) = code_and_line(&output.await.unwrap());
        assert_eq!(code, expected, "{line}");
        let said = format!("not live: uid {NOBODY}, gid {NOBODY} may not connect to the socket");
        assert_eq!(line.starts_with(&said), expected == 1, "{line}");
    }
}

#[test]
fn the_probe_is_no_part_of_the_normal_invocation() {
    let run = |flags: &[&str]| {
        let output = Command::new(CCM).args(flags).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, help) = run(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("ccm probe --help"), "{help}");
    assert!(!help.contains("Commands:"), "{help}");
    let (code, help) = run(&["probe", "--help"]);
    assert_eq!(code, Some(0));
    assert!(
        help.contains("--endpoint") && !help.contains("--provider "),
        "{help}"
    );
    let (code, wrong) = run(&["probe", "--timeout=0s"]);
    assert_eq!(code, Some(2), "{wrong}");
    let (code, wrong) = run(&["--v=2", "probe"]);
    assert_eq!(code, Some(2), "{wrong}");
    assert!(wrong.contains("'probe'"), "{wrong}");
}
