/**
 * The path below which a proxy shows this page, such as JupyterHub's `/user/ada/proxy/3001`; the server
 * writes it into the HTML.
 */

/** It is empty where the page is at the root of its host, and has no slash at its end. */
export const BASE = document.documentElement.dataset.base ?? "";

/**
 * An address of this server as the browser asks for it.
 * @param {string} path such as `/sweeps` or `/api/v1/blobs/…`
 */
export const here = (path) => BASE + path;

/** Whether a path of this host is one of this server. @param {string} pathname */
export const isHere = (pathname) => `${pathname}/`.startsWith(`${BASE}/`);

/**
 * The path as the page's routes know it. Who asks the server past its proxy has no base path in the address.
 * @param {string} pathname of a URL
 */
export const within = (pathname) => (isHere(pathname) ? pathname.slice(BASE.length) || "/" : pathname);
