//! The socket: its path and modes, who may connect, and who may replace it (CORE-2).

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use tokio::net::UnixStream;

use super::super::check::{Check, Need, Stop, Verdict, check, must};
use super::super::run::Run;

/// How long a second process may take to give up.
const SECOND: Duration = Duration::from_secs(15);

pub(super) fn checks() -> Vec<Check> {
    vec![
        check!(
            "core/socket-has-mode-0660",
            ["CORE-2"],
            "the socket has mode 0660",
            mode_of_socket
        ),
        check!(
            "core/directory-has-mode-0750",
            ["CORE-2"],
            "the socket's directory has mode 0750",
            mode_of_directory
        ),
        check!(
            "core/another-user-is-refused",
            ["CORE-2"],
            "a process of another user and group may not connect",
            another_user
        ),
        check!(
            "core/directory-is-made-with-mode-0750",
            ["CORE-2"],
            "the provider makes a missing directory, with mode 0750",
            [Need::Command],
            directory_is_made
        ),
        check!(
            "core/no-symlink-in-the-path",
            ["CORE-2"],
            "no part of the socket's path is a symbolic link, and the path has at most 107 bytes",
            no_symlinks
        ),
        check!(
            "core/stale-socket-is-taken-over",
            ["CORE-2", "CORE-6"],
            "after kill -9 a new process takes over the socket's file, which no process serves",
            [Need::Command],
            stale_socket
        ),
        check!(
            "core/second-process-leaves-a-living-socket-alone",
            ["CORE-2"],
            "a second process on the same endpoint does not take the socket from one that answers",
            [Need::Command],
            second_process
        ),
    ]
}

fn metadata(path: &Path) -> Verdict<std::fs::Metadata> {
    std::fs::symlink_metadata(path).map_err(|error| {
        Stop::failed(
            "CORE-2",
            format_args!("stat {}", path.display()),
            "it is there",
            error,
        )
    })
}

fn mode(path: &Path, expected: u32) -> Verdict {
    let mode = metadata(path)?.mode() & 0o7777;
    must(
        mode == expected,
        "CORE-2",
        format_args!("stat {}", path.display()),
        format_args!("mode {expected:04o}"),
        format_args!("mode {mode:04o}"),
    )
}

async fn mode_of_socket(run: &Run) -> Verdict {
    let path = run.target().path();
    must(
        metadata(path)?.file_type().is_socket(),
        "CORE-2",
        format_args!("stat {}", path.display()),
        "a Unix socket",
        "something else",
    )?;
    mode(path, 0o660)
}

async fn mode_of_directory(run: &Run) -> Verdict {
    mode(directory(run)?, 0o750)
}

fn directory(run: &Run) -> Verdict<&Path> {
    let path = run.target().path();
    path.parent()
        .ok_or_else(|| Stop::failed("CORE-2", path.display(), "a directory of its own", "none"))
}

/// A number for a user and a group that own neither the socket nor its directory.
fn stranger(owners: &[u32]) -> u32 {
    const NOBODY: u32 = 65_534;
    let mut stranger = NOBODY;
    while owners.contains(&stranger) {
        stranger -= 1;
    }
    stranger
}

async fn another_user(run: &Run) -> Verdict {
    if !rustix::process::geteuid().is_root() {
        return Err(Stop::not_offered(
            "only root can become another user: run the suite as root for this check",
        ));
    }
    let path = run.target().path();
    let mut owners = Vec::new();
    for part in [path, directory(run)?] {
        let of = metadata(part)?;
        owners.extend([of.uid(), of.gid()]);
    }
    let stranger = stranger(&owners);
    let directory = directory(run)?;
    let above = directory.parent().unwrap_or(directory);
    // A user that may write to a socket's file may connect to it.
    let may = tokio::process::Command::new("sh")
        .args([
            "-c",
            "cd / && if ! [ -x \"$1\" ]; then echo not so far; elif [ -w \"$0\" ]; then echo may; else echo may not; fi",
        ])
        .arg(path)
        .arg(above)
        .uid(stranger)
        .gid(stranger)
        .current_dir("/")
        .output()
        .await;
    let said = match &may {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    // The file system refuses here, not the provider, which may serve at another path later.
    if said == "not so far" {
        return Err(Stop::not_offered(format!(
            "another user cannot reach {}: a parent directory excludes it (with --command the socket is below TMPDIR), so the check cannot see what the provider refuses",
            directory.display()
        )));
    }
    if said != "may" && said != "may not" {
        return Err(Stop::not_offered(format!(
            "cannot start a process of another user here: {said:?}"
        )));
    }
    must(
        said == "may not",
        "CORE-2",
        format_args!("uid and gid {stranger} before {}", path.display()),
        "no write access to the socket, and so no connection: mode 0660 in a directory of mode 0750, with groups that exclude other users",
        "it may",
    )
}

async fn directory_is_made(run: &Run) -> Verdict {
    let directory = directory(run)?.to_owned();
    run.target().kill().await?;
    std::fs::remove_dir_all(&directory)
        .map_err(|error| Stop::not_set_up(format!("{}: {error}", directory.display())))?;
    run.target().revive().await?;
    mode(&directory, 0o750)?;
    mode(run.target().path(), 0o660)
}

async fn no_symlinks(run: &Run) -> Verdict {
    let path = run.target().path();
    let length = path.as_os_str().len();
    must(
        length <= 107,
        "CORE-2",
        path.display(),
        "at most 107 bytes",
        format_args!("{length} bytes"),
    )?;
    let parts = path.ancestors().filter(|part| {
        part.components()
            .any(|of| matches!(of, Component::Normal(_)))
    });
    for part in parts {
        must(
            !metadata(part)?.is_symlink(),
            "CORE-2",
            format_args!("stat {}", part.display()),
            "no symbolic link in the socket's path",
            "a symbolic link",
        )?;
    }
    Ok(())
}

async fn stale_socket(run: &Run) -> Verdict {
    let path = run.target().path();
    for _ in 0..2 {
        run.target().kill().await?;
        // A process that dies by SIGKILL leaves the file. If the file is gone, the suite creates a
        // stale one.
        if !path.exists() {
            let planted = std::os::unix::net::UnixListener::bind(path);
            drop(planted.map_err(|error| Stop::not_set_up(error.to_string()))?);
        }
        run.target().revive().await?;
        let session = run.session().await?;
        session.call(pb::ProbeRequest::default()).await.answer()?;
    }
    mode(path, 0o660)
}

async fn second_process(run: &Run) -> Verdict {
    let session = run.connect().await?;
    let before = session.call(pb::ProbeRequest::default()).await;
    let boot_id = before.answer()?.boot_id.clone();
    let mut second = run.target().second()?;
    // The second process may wait before it gives up. It may also serve at another path.
    let ended = second.ended(SECOND).await;
    let words = second.last_words();
    drop(second);
    let fresh = run.connect().await?;
    let after = fresh.call(pb::ProbeRequest::default()).await;
    let came = after.answer()?.boot_id.clone();
    must(
        came == boot_id,
        "CORE-2",
        "a second process was started on the endpoint while the first one served",
        format_args!("a new connection still reaches the first process, boot_id {boot_id}"),
        format_args!("boot_id {came}; the second process ended with {ended:?}: {words}"),
    )?;
    UnixStream::connect(run.target().path())
        .await
        .map(|_| ())
        .map_err(|error| {
            Stop::failed(
                "CORE-2",
                "a new connection",
                "the first process serves",
                error,
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_owns_nothing_of_it() {
        assert_eq!(stranger(&[0, 0, 1000, 1000]), 65_534);
        assert_eq!(stranger(&[65_534, 0, 65_533, 0]), 65_532);
    }
}
