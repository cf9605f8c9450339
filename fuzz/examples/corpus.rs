//! `corpus pack FOLDER FILE BYTES` packs the files of a folder into one, the smallest first, up to
//! BYTES in total; `corpus unpack FILE FOLDER` unpacks them. Each file is stored as its length in
//! four bytes, little-endian, followed by its bytes. `corpus pgy TEXT FILE` makes a compact trace
//! from a text recording, as a seed.

use std::fs;
use std::path::Path;

use pageyard_trace::{Options, TraceReader, TraceWriter, WriterOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pack", folder, file, most] => {
            let most: usize = most.parse()?;
            let mut all = Vec::new();
            for entry in fs::read_dir(folder)? {
                all.push(fs::read(entry?.path())?);
            }
            all.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
            let mut out = Vec::new();
            let mut n = 0;
            for one in all.iter().filter(|one| !one.is_empty()) {
                if out.len() + 4 + one.len() > most {
                    break;
                }
                n += 1;
                out.extend_from_slice(&u32::try_from(one.len())?.to_le_bytes());
                out.extend_from_slice(one);
            }
            fs::write(file, out)?;
            println!("{n} of {} inputs", all.len());
        }
        ["unpack", file, folder] => {
            fs::create_dir_all(folder)?;
            let data = fs::read(file)?;
            let mut rest = &data[..];
            let mut n = 0;
            while let Some((length, behind)) = rest.split_first_chunk::<4>() {
                let (one, behind) = behind
                    .split_at_checked(u32::from_le_bytes(*length) as usize)
                    .ok_or("the file is cut short")?;
                fs::write(Path::new(folder).join(format!("{n:05}")), one)?;
                n += 1;
                rest = behind;
            }
            println!("{n} inputs");
        }
        ["pgy", text, file] => {
            let mut reader = TraceReader::open(text, Options::default())?;
            let mut out = TraceWriter::new(Vec::new(), WriterOptions::default())?;
            out.attach("before/buddyinfo", b"Node 0, zone DMA 1 2 3\n")?;
            while let Some(record) = reader.next().transpose()? {
                out.write(reader.tasks(), &record)?;
            }
            fs::write(file, out.finish(reader.tasks(), reader.summary())?)?;
        }
        _ => {
            return Err(
                "corpus pack FOLDER FILE BYTES | corpus unpack FILE FOLDER | corpus pgy TEXT FILE"
                    .into(),
            );
        }
    }
    Ok(())
}
