//! The socket's path, its modes, and the users who may connect.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may fail by panic as tests do"
)]

mod common;

use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use common::{Cloud, Running, endpoint, place, soon};
use provider_sdk::prelude::*;

fn mode(path: &std::path::Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

async fn refused(path: &std::path::Path) -> ServeError {
    let server = Server::new(Cloud::new()).endpoint(endpoint(path));
    soon("the refusal", server.serve(std::future::pending()))
        .await
        .unwrap_err()
}

/// Whether the test runs as root. If not, writes a line to stderr directly, because the test
/// harness hides the output of `eprintln!` if the test passes.
#[allow(clippy::explicit_write, reason = "past the test harness is the point")]
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        writeln!(std::io::stderr(), "SKIPPED, not root: {test}").unwrap();
    }
    root
}

/// Serves at this path until its task is aborted.
async fn serve_at(
    path: &std::path::Path,
    group: Option<u32>,
) -> tokio::task::JoinHandle<Result<(), ServeError>> {
    let served = tokio::spawn(
        Server::new(Cloud::new())
            .endpoint(endpoint(path))
            .socket_group(group)
            .serve(std::future::pending()),
    );
    common::answering(path).await;
    served
}

#[tokio::test]
async fn a_path_as_long_as_a_socket_can_have_is_served() {
    let (directory, _) = place();
    let root = directory.path().as_os_str().len();
    for total in [99, 105, 107] {
        let fill = "x".repeat(total - root - "//p.sock".len());
        let path = directory.path().join(fill).join("p.sock");
        assert_eq!(path.as_os_str().len(), total);
        let served = serve_at(&path, None).await;
        assert_eq!(mode(&path), 0o660);
        let there = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(there, 1, "nothing but the socket");
        served.abort();
    }
}

#[tokio::test]
async fn every_directory_that_is_made_has_the_mode_and_the_group_needs_root() {
    if !is_root("every_directory_that_is_made_has_the_mode_and_the_group_needs_root") {
        return;
    }
    let (directory, _) = place();
    let (top, middle, low) = {
        let top = directory.path().join("a");
        (top.clone(), top.join("b"), top.join("b/c"))
    };
    let served = serve_at(&low.join("p.sock"), Some(4242)).await;
    for level in [&top, &middle, &low] {
        let metadata = std::fs::metadata(level).unwrap();
        assert_eq!((mode(level), metadata.gid()), (0o750, 4242), "{level:?}");
    }
    assert_ne!(std::fs::metadata(directory.path()).unwrap().gid(), 4242);
    served.abort();
}

#[tokio::test]
async fn a_refusal_is_a_sentence_in_debug_form_too() {
    let error = refused("/x.sock".as_ref()).await;
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[tokio::test]
async fn the_directory_is_0750_and_the_socket_0660_and_nothing_else_is_left() {
    let mut running = Running::start().await;
    let directory = running.path.parent().unwrap().to_owned();
    assert_eq!(mode(&directory), 0o750);
    assert_eq!(mode(&running.path), 0o660);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    running.stop();
    soon("the end", &mut running.served).await.unwrap().unwrap();
    assert_eq!(
        std::fs::read_dir(&directory).unwrap().count(),
        0,
        "the socket is removed"
    );
}

#[tokio::test]
async fn the_mode_of_a_directory_that_exists_is_left_alone() {
    let (directory, _) = place();
    let there = directory.path().join("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o770)).unwrap();
    let path = there.join("p.sock");
    let served = tokio::spawn(
        Server::new(Cloud::new())
            .endpoint(endpoint(&path))
            .serve(std::future::pending()),
    );
    common::answering(&path).await;
    assert_eq!(mode(&there), 0o770);
    assert_eq!(mode(&path), 0o660);
    served.abort();
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let (_directory, path) = place();
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    assert!(std::fs::metadata(&path).unwrap().file_type().is_socket());
    let served = tokio::spawn(
        Server::new(Cloud::new())
            .endpoint(endpoint(&path))
            .serve(std::future::pending()),
    );
    common::answering(&path).await;
    served.abort();
}

#[tokio::test]
async fn a_socket_on_which_somebody_answers_is_left_to_them() {
    let running = Running::start().await;
    let inode = std::fs::metadata(&running.path).unwrap().ino();
    let error = refused(&running.path).await;
    assert!(matches!(error, ServeError::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains("another provider answers on"),
        "{error}"
    );
    assert_eq!(std::fs::metadata(&running.path).unwrap().ino(), inode);
    running
        .provider()
        .await
        .probe(cloud_provider_api::v1alpha1::ProbeRequest {})
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_never_removed() {
    let (_directory, path) = place();
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "precious").unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, ServeError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn symbolic_links_are_refused_at_every_place_of_the_path() {
    let (directory, path) = place();
    let real = directory.path().join("real");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, path.parent().unwrap()).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, ServeError::Symlink { .. }), "{error}");
    assert!(
        error.to_string().contains(&*real.to_string_lossy()),
        "{error}"
    );

    let link = real.join("link.sock");
    std::os::unix::fs::symlink("/nowhere", &link).unwrap();
    let error = refused(&link).await;
    assert!(matches!(error, ServeError::Symlink { .. }), "{error}");
}

#[tokio::test]
async fn a_socket_that_is_not_ours_any_more_stays_at_the_end() {
    let mut running = Running::start().await;
    std::fs::remove_file(&running.path).unwrap();
    let _other = UnixListener::bind(&running.path).unwrap();
    running.stop();
    soon("the end", &mut running.served).await.unwrap().unwrap();
    assert!(running.path.exists());
}

#[tokio::test]
async fn a_wrong_description_of_the_provider_is_refused_at_the_start() {
    struct Nameless;
    #[async_trait]
    impl Provider for Nameless {
        fn info(&self) -> ProviderInfo {
            ProviderInfo::new("My Cloud", "1")
        }
        async fn initialize(
            &self,
            _: &Call,
            _: &InitializeRequest,
        ) -> Result<Initialized, Failure> {
            Ok(Initialized::new("x"))
        }
    }
    let (_directory, path) = place();
    let server = Server::new(Nameless).endpoint(endpoint(&path));
    let error = server
        .serve(std::future::pending())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("My Cloud") && error.contains("lower-case"),
        "{error}"
    );
    assert!(!path.exists());

    let mut cloud = Cloud::new();
    cloud.classes.push("default".into());
    let server = Server::new(cloud).endpoint(endpoint(&path));
    let served = soon("the refusal", server.serve(std::future::pending()));
    let error = served.await.unwrap_err().to_string();
    assert!(error.contains("the class \"default\""), "{error}");
}

/// The next test runs this one in a process of its own, as another user.
#[tokio::test]
#[ignore = "the other half of a_connection_of_another_user_is_refused_needs_root"]
async fn other_user() {
    let path = std::env::var("PROVIDER_SDK_SOCKET").unwrap();
    let channel = tonic::transport::Endpoint::try_from(endpoint(path.as_ref()))
        .unwrap()
        .connect_lazy();
    let mut client =
        cloud_provider_api::v1alpha1::provider_service_client::ProviderServiceClient::new(channel);
    let answer = soon(
        "an answer",
        client.probe(cloud_provider_api::v1alpha1::ProbeRequest {}),
    )
    .await;
    println!(
        "PROBE {}",
        if answer.is_ok() {
            "answered"
        } else {
            "refused"
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_another_user_is_refused_needs_root() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !is_root("a_connection_of_another_user_is_refused_needs_root") {
        return;
    }
    for (allowed, expected) in [(4242, "PROBE refused"), (NOBODY, "PROBE answered")] {
        let running = Running::start_with(|server| server.peer_uid(allowed)).await;
        // These modes admit every user, so that only the check of the peer can refuse.
        for (path, mode) in [
            (running.directory.path(), 0o755),
            (running.path.parent().unwrap(), 0o755),
            (&*running.path, 0o666),
        ] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let program = running.directory.path().join("client");
        // A child of another thread would inherit the file that this process writes (ETXTBSY).
        let copied = std::process::Command::new("cp")
            .args([&std::env::current_exe().unwrap(), &program])
            .status();
        assert!(copied.unwrap().success());
        let mut child = std::process::Command::new(&program);
        child
            .args(["--exact", "other_user", "--ignored", "--nocapture"])
            .env("PROVIDER_SDK_SOCKET", &running.path)
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY);
        let output = tokio::task::spawn_blocking(move || child.output().unwrap())
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains(expected),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // The server always accepts its own user.
        running
            .provider()
            .await
            .probe(cloud_provider_api::v1alpha1::ProbeRequest {})
            .await
            .unwrap();
    }
}
