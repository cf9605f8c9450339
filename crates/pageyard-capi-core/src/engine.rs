//! The engines that a yard can run on.

use core::fmt::{self, Write};

use pageyard::policy::Engine;
use pageyard::put::put;

use crate::status::{PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_ENGINE, message, pageyard_status};

/// The engine that answers every request as Linux 6.12 does. The core level's default.
pub const PAGEYARD_ENGINE_LINUX612: u64 = 0;
/// The packed engine: a bit for each free frame, 1.3 bytes of room a frame instead of 16 but more for
/// each zone and CPU, and requests served from the fullest pageblocks. docs/packed.md says what differs.
/// The default of pageyard_options_init. In libpageyard, and in a libpageyard-core that was installed with
/// --packed.
pub const PAGEYARD_ENGINE_PACKED: u64 = 1;

/// Converts the number of an engine.
///
/// # Errors
/// Fails for an unknown number, and for an engine that is not in this library.
pub fn engine(number: u64) -> Result<Engine, pageyard_status> {
    match number {
        PAGEYARD_ENGINE_LINUX612 => Ok(Engine::Exact),
        PAGEYARD_ENGINE_PACKED if cfg!(feature = "packed") => Ok(Engine::Packed),
        PAGEYARD_ENGINE_PACKED => Err(PAGEYARD_ERR_ENGINE),
        _ => Err(PAGEYARD_ERR_ARGUMENT),
    }
}

/// Writes why an engine is refused with this status.
pub(crate) fn write_refusal(
    number: u64,
    status: pageyard_status,
    out: &mut impl Write,
) -> fmt::Result {
    match status {
        PAGEYARD_ERR_ARGUMENT => {
            put!(out, "engine ", number, "; expected one of the PAGEYARD_ENGINE numbers")
        }
        _ => put!(out, message(status).to_str().unwrap_or("")),
    }
}
