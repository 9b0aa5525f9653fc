//! A child process that is killed when its handle is dropped.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::{Instant, sleep};

use crate::error::{Error, While};

/// A child process whose output goes to a log file. Dropping this object kills the process, also
/// after a test's panic.
///
/// It is not bound to an async runtime: one test may start it and another end it. Its standard
/// input is a pipe, which closes when this process ends. `TESTENV_DIE_WITH_STDIN=1` asks the child
/// to end then. So the components of the control plane end even if this process is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: String,
    log: PathBuf,
    /// How the process ended, once this is known. Its pid may then belong to another process.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`; output and errors are appended to the file `log`.
    pub fn start(mut command: Command, log: impl Into<PathBuf>) -> Result<Self, Error> {
        let log = log.into();
        let open = || {
            fs::File::options()
                .create(true)
                .append(true)
                .open(&log)
                .while_doing(|| format!("cannot write {}", log.display()))
        };
        let program = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let child = command
            .stdin(Stdio::piped())
            .stdout(open()?)
            .stderr(open()?)
            .env("TESTENV_DIE_WITH_STDIN", "1")
            .spawn()
            .while_doing(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self {
            child,
            program,
            log,
            ended: None,
        })
    }

    /// Starts the command in a separate process group: a terminal's Ctrl-C reaches only the test.
    /// A test that ends without a drop ends this child only if the child reads its standard input.
    pub(crate) fn start_apart(
        mut command: Command,
        log: impl Into<PathBuf>,
    ) -> Result<Self, Error> {
        command.process_group(0);
        Self::start(command, log)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with the process's output.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The process's output so far, with that of earlier processes with the same log file.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The process's resident memory in bytes; 0 when the process has ended.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most resident memory that the process ever had, in bytes; 0 when it has ended.
    pub fn most_resident_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, kind: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        status
            .lines()
            .find_map(|line| line.strip_prefix(kind))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kibibytes| kibibytes * 1024)
    }

    /// How the process ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits for the end of the process. Returns the exit status, or an error after `deadline`.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus, Error> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.exit_status() {
                return Ok(status);
            }
            if Instant::now() >= end {
                return Err(Error::StillRuns {
                    program: self.program.clone(),
                    pid: self.pid(),
                    after: deadline,
                });
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends the process at once (SIGKILL) and waits until it is gone. Nothing happens if it has
    /// ended already.
    pub fn kill(&mut self) {
        if self.exit_status().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// Asks it to end (SIGTERM). [`wait`](Self::wait) waits for the end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks the process to end, and kills it if it still runs after this time. Blocks, because a
    /// `drop` cannot await.
    pub(crate) fn end_within(&mut self, grace: Duration) {
        self.terminate();
        let end = std::time::Instant::now() + grace;
        while self.exit_status().is_none() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }

    /// Stops it (SIGSTOP): it keeps its connections and does nothing.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
        // The signal stops one thread after the other, so the last may still answer.
        if let Some(pid) = self.running() {
            let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), how), Err(rustix::io::Errno::INTR)) {}
        }
    }

    /// Lets it go on after [`suspend`](Self::suspend) (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Its process id. `None` after its end was waited for, because another process may have the id
    /// then.
    fn running(&self) -> Option<Pid> {
        let raw = i32::try_from(self.pid()).ok()?;
        Pid::from_raw(raw).filter(|_| self.ended.is_none())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.running() {
            // The only possible failure is that it has ended.
            let _: Result<(), io::Error> = kill_process(pid, signal).map_err(io::Error::from);
        }
    }

    /// The last lines of the log, for errors.
    pub fn log_tail(&self) -> String {
        tail(&self.log())
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Prints the last lines of a log to standard error: for a test that failed.
pub fn show_log(name: &str, log: &str) {
    eprintln!("--- the end of {name}\n{}", tail(log));
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
