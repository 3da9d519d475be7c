// Runs a folder of .mpy on the 32-bit MicroPython of a WebAssembly module:
//   node wasm.mjs MODULE FOLDER CODE CODE ...
// Knows: how files get into it. Never knows: what is measured.
import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [module, folder, ...pieces] = process.argv.slice(2);
const { loadMicroPython } = await import(pathToFileURL(module));
const mp = await loadMicroPython({ stdout: (line) => console.log(line), linebuffer: true });

function copy(from, to) {
    for (const name of readdirSync(from)) {
        const path = join(from, name);
        if (statSync(path).isDirectory()) {
            mp.FS.mkdir(to + "/" + name);
            copy(path, to + "/" + name);
        } else {
            mp.FS.writeFile(to + "/" + name, readFileSync(path));
        }
    }
}

try {
    mp.FS.mkdir("/lib");
    copy(folder, "/lib");
    for (const code of pieces) {
        mp.runPython(code);
        mp.runPython("import gc; gc.collect()"); // it collects when no Python runs
    }
} catch (e) {
    console.error(e.message);
    process.exit(1);
}
