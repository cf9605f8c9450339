//! The options of a run, and the load's parameters without a source.

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seeds all random draws.
    pub seed: u64,
    /// Number of builds, one after another.
    pub rounds: u32,
    /// Size of the heap in bytes.
    pub memory: u64,
    /// Number of CPUs; each runs one process of the build at a time.
    pub cpus: u32,
    /// The load's parameters that have no source.
    pub assumed: Assumed,
}

/// Parameters of the load that were not published and not measured.
///
/// Their defaults were chosen while the results were compared with A.3: under less pressure
/// `Vanilla`'s mismatches end after some rounds. So A.3's figures under `Vanilla` are no evidence
/// for this load, and `pageyard reproduce hygiene` shows the results over a range of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumed {
    /// Factor by which reclaimable slab pages exceed the recorded ones, which are of small C projects
    /// whose few files had been looked up before.
    pub slab_scale: f64,
    /// How many times as fast as the page cache slabs are reclaimed, each in proportion to its size: a
    /// cached inode is cheaper to recreate than a page.
    pub slab_pressure: f64,
    /// Memory in bytes of the machine that requested the published number of huge pages.
    pub machine: u64,
    /// Seconds for which huge pages are held: 1 to 9 of every ten.
    pub held: u64,
}

impl Assumed {
    /// The default values.
    pub const DEFAULT: Assumed =
        Assumed { slab_scale: 50.0, slab_pressure: 2.0, machine: 8 << 30, held: 1 };
}

impl Default for Assumed {
    fn default() -> Self {
        Assumed::DEFAULT
    }
}

impl Options {
    /// Smallest heap: enough for one process of the build, and several pageblocks of each type.
    pub const LEAST_MEMORY: u64 = 256 << 20;
    /// Largest heap, in bytes; far more than a workload of this kind fills.
    pub const MOST_MEMORY: u64 = 1 << 40;
    /// Number of CPUs of the machine on which rounds were measured.
    const CPUS: u32 = 4;
}

impl Default for Options {
    fn default() -> Self {
        let assumed = Assumed::default();
        Options { seed: 1, rounds: 50, memory: 512 << 20, cpus: Options::CPUS, assumed }
    }
}
