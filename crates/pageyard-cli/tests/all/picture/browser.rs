//! The page in a real browser: Debian's package `chromium`, headless, controlled by its DevTools
//! protocol through a pair of pipes. Keys are real key events.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{FAULTS, Folder, ok, sample};

/// The path of Chromium, if it is installed. `.ci/run` installs it.
fn chromium() -> Option<&'static str> {
    let there = |name: &&str| {
        let mut tried = Command::new(name);
        tried.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        tried.status().is_ok_and(|s| s.success())
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(there);
    let _ = pageyard_unmet::met("chromium (apt-get install chromium)", found.is_some());
    found
}

struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    last: u64,
    /// Console output and errors of the page.
    said: Vec<String>,
    loaded: bool,
}

impl Browser {
    fn start(program: &str, folder: &Folder) -> Browser {
        let (to, from) = (folder.0.join("to"), folder.0.join("from"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // The shell opens the pipes as the descriptors that the browser expects.
        let command = format!(
            "exec {program} --headless --no-sandbox --disable-gpu --no-first-run \
             --disable-background-networking --user-data-dir=\"$1\" --window-size=1200,1000 \
             --remote-debugging-pipe 3<\"$2\" 4>\"$3\" about:blank"
        );
        let child = Command::new("sh")
            .args(["-c", &command, "sh"])
            .args([&folder.0.join("profile"), &to, &from])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let said = Vec::new();
        let mut b = Browser { child, to, from, session: None, last: 0, said, loaded: false };
        let target = b.call("Target.createTarget", json!({"url": "about:blank"}));
        let id = json!({"targetId": target["targetId"], "flatten": true});
        let session = b.call("Target.attachToTarget", id);
        b.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            b.call(&format!("{domain}.enable"), json!({}));
        }
        b
    }

    /// Calls a method and waits for its result.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let message = self.message();
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser has gone");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.said.push(message["params"].to_string());
            }
            _ => {}
        }
        message
    }

    fn open(&mut self, path: &Path) {
        self.loaded = false;
        self.call("Page.navigate", json!({"url": format!("file://{}", path.display())}));
        while !self.loaded {
            self.message();
        }
    }

    fn eval(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{script}: {result}");
        result["result"]["value"].clone()
    }

    fn key(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let params = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
                "nativeVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", params);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares all figures with the data, in the document as the browser built it.
const FIGURES: &str = r##"(() => {
  const data = JSON.parse(document.querySelector("#data").textContent);
  const at = (p) => p.split("/").slice(1).reduce((here, name) => here[name], data);
  let n = 0;
  for (const e of document.querySelectorAll("[data-at]")) {
    if (Number(e.dataset.value) !== at(e.dataset.at)) throw new Error(e.outerHTML);
    n++;
  }
  for (const e of document.querySelectorAll(".mark[data-y-at], .mark[data-x-at]")) {
    for (const axis of ["x", "y"]) {
      const place = e.dataset[axis + "At"];
      if (place && Number(e.dataset[axis]) !== at(place)) throw new Error(e.outerHTML);
      if (place) n++;
    }
  }
  return n;
})()"##;

/// Compares the maps with the data's frames at the slider's time.
const MAPS: &str = r##"(() => {
  const data = JSON.parse(document.querySelector("#data").textContent);
  const figure = document.querySelector("figure[data-figure=heap]");
  const slider = figure.querySelector("input.time");
  const t = slider.dataset.end * slider.value / slider.max;
  const shown = [];
  for (const svg of figure.querySelectorAll("svg.map")) {
    const heap = svg.dataset.heap.split("/").slice(1).reduce((here, name) => here[name], data);
    let frame = 0;
    heap.times_ns.forEach((ns, i) => { if (ns <= t) frame = i; });
    const cells = heap.frames[frame];
    const wanted = {}, there = {};
    for (let i = 0; i < cells.length; i += 2) {
      const key = `t${parseInt(cells[i], 16)} f${parseInt(cells[i + 1], 16)}`;
      wanted[key] = (wanted[key] || 0) + 1;
    }
    for (const p of svg.querySelectorAll(".cells path"))
      there[p.getAttribute("class")] = p.getAttribute("d").split("M").length - 1;
    for (const key of new Set([...Object.keys(wanted), ...Object.keys(there)]))
      if (wanted[key] !== there[key]) throw new Error(`${key}: ${there[key]}, not ${wanted[key]}`);
    const words = svg.parentNode.querySelector(".words").textContent;
    const pages = Number(words.split(": ")[1].replace(/[^0-9]/g, ""));
    if (pages !== heap.in_use[frame]) throw new Error(words);
    shown.push(frame);
  }
  return shown;
})()"##;

fn slider(b: &mut Browser) -> i64 {
    b.eval("Number(document.querySelector('input.time').value)").as_i64().unwrap()
}

#[test]
fn a_page_in_chromium() {
    let Some(program) = chromium() else { return };
    let folder = Folder::new("browser");
    ok(
        &folder,
        &[&FAULTS[..], &["--iterations", "6", "-o", "f.json", "--html", "f.html"]].concat(),
    );
    let trace = sample();
    let replay = ["replay", trace.to_str().unwrap(), "--seeds", "1", "--html", "r.html"];
    ok(&folder, &replay);
    let rounds = ["run", "hygiene", "--rounds", "2", "--memory", "256M", "--html", "h.html"];
    ok(&folder, &rounds);
    let mut b = Browser::start(program, &folder);
    b.open(&folder.0.join("h.html"));
    assert!(b.eval(FIGURES).as_u64() >= Some(12));
    for (page, numbers) in [("f.html", 300), ("r.html", 60)] {
        b.open(&folder.0.join(page));
        assert!(b.eval(FIGURES).as_u64() > Some(numbers), "{page}");

        // Move the slider by keys: each position shows the frames of its time.
        b.eval("document.querySelector('input.time').focus()");
        let first = slider(&mut b);
        b.eval(MAPS);
        b.key("End", 35);
        let last = slider(&mut b);
        assert!(first <= last && last == 60, "{page}: {first} {last}");
        let at_end = b.eval(MAPS);
        b.key("Home", 36);
        assert_eq!(slider(&mut b), 0);
        let at_start = b.eval(MAPS);
        assert_ne!(at_start, at_end, "{page}");
        for n in 1..=3 {
            b.key("ArrowRight", 39);
            assert_eq!(slider(&mut b), n);
            b.eval(MAPS);
        }
        b.key("End", 35);
        assert_eq!(slider(&mut b), last);
        assert_eq!(b.eval(MAPS), at_end);

        // Play starts from the beginning and runs until it is stopped.
        b.eval("document.querySelector('button.play').focus()");
        b.key(" ", 32);
        b.eval("new Promise((done) => setTimeout(done, 1000))");
        b.key(" ", 32);
        let moved = slider(&mut b);
        assert!(moved > 0 && moved < last, "{moved}");
        b.eval(MAPS);

        // Select another list: both figures show its curves.
        let before = b.eval("document.querySelector('svg[data-lists] path[d^=M]:not(.grid):not(.axis):not(.tick)').getAttribute('d')");
        let other = r##"(() => {
          const s = document.querySelector("select.choose-list");
          s.selectedIndex = (s.selectedIndex + 1) % s.length;
          s.dispatchEvent(new Event("change"));
          const inside = s.closest("details, section");
          const data = JSON.parse(document.querySelector("#data").textContent);
          const wanted = s.value;
          for (const e of inside.querySelectorAll("svg[data-lists] .series")) {
            if (!e.dataset.yAt) continue;
            const list = e.dataset.yAt.split("/").slice(1, -1).reduce((here, n) => here[n], data);
            const name = `CPU ${list.cpu}, node ${list.node} ${list.zone}`;
            if (name !== wanted) throw new Error(`${name}, not ${wanted}`);
            const d = e.querySelector("path").getAttribute("d");
            if (d.length < 20 || d.includes("NaN")) throw new Error(d);
          }
          return [...inside.querySelectorAll("select.choose-list")].map((o) => o.value);
        })()"##;
        let chosen = b.eval(other);
        assert_eq!(chosen[0], chosen[1], "{page}");
        let after = b.eval("document.querySelector('svg[data-lists] path[d^=M]:not(.grid):not(.axis):not(.tick)').getAttribute('d')");
        assert_ne!(before, after, "{page}");

        // Read values by keys; hide a legend.
        b.eval("document.querySelector('svg.plot[tabindex]').focus()");
        b.key("ArrowRight", 39);
        let tip = b.eval(
            "document.querySelector('#tip').hidden || document.querySelector('#tip').textContent",
        );
        assert!(tip.as_str().is_some_and(|t| t.contains(": ")), "{page}: {tip}");
        b.key("Escape", 27);
        assert_eq!(b.eval("document.querySelector('#tip').hidden"), json!(true));
        b.eval("document.querySelector('button.toggle').focus()");
        b.key(" ", 32);
        assert!(b.eval("document.querySelectorAll('.series.off').length").as_u64() > Some(0));

        // Tab reaches every control, in order, and each shows its focus.
        b.eval("document.activeElement.blur(); scrollTo(0, 0)");
        b.open(&folder.0.join(page));
        b.key("Tab", 9);
        assert_eq!(b.eval("document.activeElement.className"), json!("skip"));
        b.key("Tab", 9);
        assert_eq!(b.eval("document.activeElement.className"), json!("scroll"));
        assert_eq!(b.eval("getComputedStyle(document.activeElement).outlineStyle"), json!("solid"));

        // Light, dark, paper, a phone.
        let mut colours = Vec::new();
        for theme in ["light", "dark"] {
            let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
            b.call("Emulation.setEmulatedMedia", json!({"media": "screen", "features": features}));
            colours.push(b.eval("getComputedStyle(document.body).backgroundColor"));
        }
        assert_eq!(colours, [json!("rgb(255, 255, 255)"), json!("rgb(20, 23, 27)")]);
        b.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
        assert_eq!(
            b.eval("getComputedStyle(document.querySelector('.controls')).display"),
            json!("none")
        );
        assert_eq!(
            b.eval("getComputedStyle(document.body).backgroundColor"),
            json!("rgb(255, 255, 255)")
        );
        b.call("Emulation.setEmulatedMedia", json!({"media": "", "features": []}));
        let narrow = json!({"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": true});
        b.call("Emulation.setDeviceMetricsOverride", narrow);
        assert_eq!(
            b.eval("document.documentElement.scrollWidth"),
            json!(400),
            "{page} is too wide"
        );
        b.call("Emulation.clearDeviceMetricsOverride", json!({}));

        // The page requested no other resource and reported no error.
        assert_eq!(b.eval("performance.getEntriesByType('resource').length"), json!(0), "{page}");
    }
    assert!(b.said.is_empty(), "{:#?}", b.said);
    // A page that fails must be noticed, or these checks prove nothing.
    b.eval("setTimeout(() => { throw new Error('seen') }, 0)");
    b.eval("new Promise((done) => setTimeout(done, 50))");
    assert!(b.said.iter().any(|s| s.contains("seen")), "{:?}", b.said);
}
