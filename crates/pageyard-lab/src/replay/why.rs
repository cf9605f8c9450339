//! Blame for a recording and for policies: replays a trace and explains its cases.

use pageyard::policy::Engine;

use super::blame::{Blame, BlameSide, RECORDED};
use super::error::ReplayError;
use super::follower::Followed;
use super::input::Input;
use super::options::{Keep, Options, Stage};
use super::prepared::Prepared;
use super::run::run;
use super::setting::Setting;
use crate::policies::{PolicyError, by_name};

/// Replays a trace and explains each request that failed, was slow, or took a block of another
/// type: in the recording, and under the options' policies or, without any, under that of the
/// recording kernel. The options for the number of seeds, jobs, explain and record are ignored.
///
/// # Errors
/// Fails as [`replay`](super::replay()) does.
///
/// ```no_run
/// use pageyard_lab::replay::{Input, Options, by_name, why};
///
/// let options = Options { policies: vec![by_name("Linux612")?], ..Options::default() };
/// let blame = why(Input::Path("samples/kbuild.pgy".into()), &options, &mut |_, _, _| {})?;
/// let [failed, slow, claims, steals] = blame.sides[0].counts();
/// # let _ = (failed, slow, claims, steals);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn why(
    input: Input,
    options: &Options,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Blame, ReplayError> {
    let packed = options.policies.iter().find(|c| c.rules.engine == Engine::Packed);
    if let Some(choice) = packed {
        let why = "this engine reports no claims and steals; leave out this policy or --why";
        return Err(PolicyError { name: choice.name.clone(), why: why.to_owned() }.into());
    }
    let mut ready =
        Prepared::new(input, options, Keep { origins: true, ..Keep::default() }, progress)?;
    let Followed { cases, has_efforts, .. } =
        ready.followed.take().expect("the recording was followed");
    let mut sides = vec![BlameSide { name: RECORDED.to_owned(), cases }];
    let policies = match options.policies.as_slice() {
        [] => vec![by_name(ready.machine.kernel.policy)?],
        given => given.to_vec(),
    };
    let setting = Setting { blame: ready.names.as_ref(), ..ready.setting(&options.stop) };
    let all = ready.plan.len * policies.len() as u64;
    for (i, choice) in policies.iter().enumerate() {
        let done = i as u64 * ready.plan.len;
        let ran = run(&setting, choice, options.seed, &mut |at| {
            progress(Stage::Replay, done + at, Some(all));
        })?;
        let cases = ran.cases.expect("the run's cases were collected");
        sides.push(BlameSide { name: choice.name.clone(), cases });
    }
    Ok(Blame { reading: ready.reading, machine: ready.machine, has_efforts, sides })
}
