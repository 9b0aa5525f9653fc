//! The command line as a whole, in upstream's groups, and the configuration file that it overrides.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _};

use super::file::{self, FileFault};
use super::{Args, legacy};

/// The groups of `--help`, in the order of a Go CCM. The ccm's own groups are among them.
pub(super) const GROUPS: [&str; 15] = [
    "Provider flags",
    "Debugging flags",
    "Leader-migration flags",
    "Generic flags",
    "Cloud-node-controller flags",
    "Cloud-node-lifecycle-controller flags",
    "Service-lb-controller flags",
    "Node-route-controller flags",
    "Webhook flags",
    "Webhook serving flags",
    "Secure serving flags",
    "Authentication flags",
    "Authorization flags",
    "Misc flags",
    "Global flags",
];

/// The reason why there are no [`Args`].
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    /// An error of the command line, or the text of `--help`.
    #[error(transparent)]
    CommandLine(Box<clap::Error>),
    /// All errors in the file of `--config`.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    File(Vec<FileFault>),
}

impl From<clap::Error> for ArgsError {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(Box::new(error))
    }
}

/// The command with the fields of [`Args`], sorted like the help of a Go CCM.
pub fn command() -> Command {
    let derived = Args::command();
    let mut args: Vec<Arg> = derived.get_arguments().cloned().collect();
    args.push(
        Arg::new("help")
            .short('h')
            .long("help")
            .action(ArgAction::Help)
            .help("Print help; -h leaves out flags without effect")
            .help_heading("Global flags"),
    );
    let group = |arg: &Arg| {
        let heading = arg.get_help_heading();
        GROUPS
            .iter()
            .position(|group| Some(*group) == heading)
            .unwrap_or(GROUPS.len())
    };
    args.sort_by_key(|arg| (group(arg), arg.get_long().unwrap_or_default().to_owned()));
    let about = derived.get_about().cloned().unwrap_or_default();
    Command::new("ccm")
        .about(about)
        .max_term_width(120)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        // As with Go's flags: if a flag with one value is given twice, the last one counts.
        .args_override_self(true)
        .after_help("`ccm probe` probes a provider, for exec probes of the kubelet: see `ccm probe --help`.")
        .args(args)
}

impl Args {
    /// Reads the command line, and the file of `--config` if it is given. The command line
    /// overrides the file.
    pub fn parse_from_command_line(
        line: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Self, ArgsError> {
        let command = command();
        let line = without_empty(line.into_iter().map(Into::into), &command);
        let matches = command.clone().try_get_matches_from(line.clone())?;
        let Some(path) = matches.get_one::<std::path::PathBuf>("config").cloned() else {
            return Ok(Self::from_arg_matches(&matches)?);
        };
        let entries = file::read(&path, &command).map_err(ArgsError::File)?;
        let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let mut whole: Vec<OsString> = line.first().cloned().into_iter().collect();
        let mut origins = Vec::new();
        for entry in entries.into_iter().filter(|entry| !given(&entry.id)) {
            whole.extend(entry.arguments.into_iter().map(OsString::from));
            origins.push((format!("--{}", entry.key), entry.place));
        }
        whole.extend(line.into_iter().skip(1));
        let mut args = Self::from_arg_matches(&command.try_get_matches_from(whole)?)?;
        args.origins = origins.into_iter().collect();
        Ok(args)
    }
}

/// The arguments without the flags that [say nothing](says_nothing), also as two arguments
/// (`--kubeconfig ""`).
fn without_empty(line: impl Iterator<Item = OsString>, command: &Command) -> Vec<OsString> {
    let mut arguments = Vec::<OsString>::new();
    for argument in line {
        let mut flag = argument.clone();
        if let Some(last) = arguments.last().filter(|_| argument.is_empty()) {
            flag.clone_from(last);
            flag.push("=");
        }
        if !says_nothing(flag.to_str(), command) {
            arguments.push(argument);
        } else if argument.is_empty() {
            arguments.pop();
        }
    }
    arguments
}

/// Whether this is a flag with an empty value (`--kubeconfig=`) for a file, a directory or one of
/// the cluster's ranges. To a Go CCM such a flag is absent.
pub(super) fn says_nothing(argument: Option<&str>, command: &Command) -> bool {
    let name = argument.and_then(|text| text.strip_prefix("--")?.strip_suffix('='));
    name.is_some_and(|name| {
        command.get_arguments().any(|arg| {
            let value = arg.get_value_names().and_then(|names| names.first());
            let may = value.is_some_and(|value| matches!(value.as_str(), "FILE" | "DIRECTORY"));
            arg.get_long() == Some(name)
                && (may || matches!(name, "cluster-cidr" | "service-cluster-ip-range"))
        })
    })
}

/// Whether a flag takes several values: as a list, or because it is given more than once.
pub(super) fn takes_a_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append) && !legacy::is_legacy(arg.get_id().as_str())
}

/// clap's error about one value, without clap's decoration.
pub(super) fn what_is_wrong(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ContextValue};
    if let Some(source) = std::error::Error::source(error) {
        return source.to_string();
    }
    match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(values))) if !values.is_empty() => {
            format!("expected one of {}", values.join(", "))
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    }
}
