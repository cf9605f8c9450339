//! Tests of the core that are done in a moment, in one program. Their files lie with the others, in
//! `crates/pageyard/tests/all`.

#[path = "../../../pageyard/tests/all/common/mod.rs"]
mod common;

#[path = "../../../pageyard/tests/all/attempts.rs"]
mod attempts;
#[path = "../../../pageyard/tests/all/batch.rs"]
mod batch;
#[path = "../../../pageyard/tests/all/buddy.rs"]
mod buddy;
#[path = "../../../pageyard/tests/all/bulk.rs"]
mod bulk;
#[path = "../../../pageyard/tests/all/busy.rs"]
mod busy;
#[path = "../../../pageyard/tests/all/claims.rs"]
mod claims;
#[path = "../../../pageyard/tests/all/cma.rs"]
mod cma;
#[path = "../../../pageyard/tests/all/compact_rules.rs"]
mod compact_rules;
#[path = "../../../pageyard/tests/all/contig.rs"]
mod contig;
#[path = "../../../pageyard/tests/all/counters.rs"]
mod counters;
#[path = "../../../pageyard/tests/all/cpus.rs"]
mod cpus;
#[path = "../../../pageyard/tests/all/deferred.rs"]
mod deferred;
#[path = "../../../pageyard/tests/all/error_texts.rs"]
mod error_texts;
#[path = "../../../pageyard/tests/all/fast_path.rs"]
mod fast_path;
#[path = "../../../pageyard/tests/all/findings.rs"]
mod findings;
#[path = "../../../pageyard/tests/all/free_errors.rs"]
mod free_errors;
#[path = "../../../pageyard/tests/all/guards.rs"]
mod guards;
#[path = "../../../pageyard/tests/all/highatomic.rs"]
mod highatomic;
#[path = "../../../pageyard/tests/all/hooks.rs"]
mod hooks;
#[path = "../../../pageyard/tests/all/hostile.rs"]
mod hostile;
#[path = "../../../pageyard/tests/all/init.rs"]
mod init;
#[path = "../../../pageyard/tests/all/interleaved.rs"]
mod interleaved;
#[path = "../../../pageyard/tests/all/isolation.rs"]
mod isolation;
#[path = "../../../pageyard/tests/all/knobs.rs"]
mod knobs;
#[path = "../../../pageyard/tests/all/kswapd.rs"]
mod kswapd;
#[path = "../../../pageyard/tests/all/lock_times.rs"]
mod lock_times;
#[path = "../../../pageyard/tests/all/nodes.rs"]
mod nodes;
#[path = "../../../pageyard/tests/all/pcp_drain.rs"]
mod pcp_drain;
#[path = "../../../pageyard/tests/all/pcp_lists.rs"]
mod pcp_lists;
#[path = "../../../pageyard/tests/all/place.rs"]
mod place;
#[path = "../../../pageyard/tests/all/properties.rs"]
mod properties;
#[path = "../../../pageyard/tests/all/reclaim.rs"]
mod reclaim;
#[path = "../../../pageyard/tests/all/reviewed.rs"]
mod reviewed;
#[path = "../../../pageyard/tests/all/robustness.rs"]
mod robustness;
#[path = "../../../pageyard/tests/all/safety.rs"]
mod safety;
#[path = "../../../pageyard/tests/all/text.rs"]
mod text;
#[path = "../../../pageyard/tests/all/threads.rs"]
mod threads;
#[path = "../../../pageyard/tests/all/touches.rs"]
mod touches;
#[path = "../../../pageyard/tests/all/vanilla.rs"]
mod vanilla;
#[path = "../../../pageyard/tests/all/verdicts.rs"]
mod verdicts;
#[path = "../../../pageyard/tests/all/watermarks.rs"]
mod watermarks;
#[path = "../../../pageyard/tests/all/zones.rs"]
mod zones;
